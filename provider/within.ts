/** Waits for an outcome, and no longer than `ms`; then rejects with what `late` gives. What was begun goes on, and its outcome is nobody's any more. */
export async function within<T>(ms: number, action: () => Promise<T>, late: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const tooLate = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), ms)
  })
  try {
    return await Promise.race([action(), tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** Where models are called or fetched. What is sent there leaves the house: that is what these sets are for. */
import type { Preset } from './preset.ts'

/** One set for each provider. */
export const MODEL_APIS: readonly Preset[] = [
  {
    name: 'openai',
    opens: 'the API of OpenAI',
    leavesClosed: 'the chat site, sign-in (auth.openai.com), files on oaiusercontent.com, Azure OpenAI',
    entries: ['api.openai.com'],
  },
  {
    name: 'anthropic',
    opens: 'the API of Anthropic',
    leavesClosed: 'the chat site (claude.ai), the console, telemetry, Bedrock and Vertex',
    entries: ['api.anthropic.com'],
  },
  {
    name: 'google-ai',
    opens: 'the Gemini API',
    // Everything of Google Cloud is below googleapis.com, also storage that belongs to anybody.
    leavesClosed: 'Vertex AI (*-aiplatform.googleapis.com), Google Cloud, storage.googleapis.com, sign-in',
    entries: ['generativelanguage.googleapis.com'],
  },
  {
    name: 'mistral',
    opens: 'the API of Mistral',
    leavesClosed: 'the chat site, the console',
    entries: ['api.mistral.ai'],
  },
  {
    name: 'openrouter',
    opens: 'the API of OpenRouter, which passes prompts on to many providers',
    leavesClosed: 'the providers themselves',
    entries: ['openrouter.ai'],
  },
  {
    name: 'huggingface',
    opens: 'models and datasets of the Hugging Face hub',
    // Downloads are redirected to regional hosts below two names that belong to the hub alone. Reading and pushing share
    // one name: a push needs a token, not another host.
    leavesClosed: 'Spaces (*.hf.space: programs of strangers), inference (router.huggingface.co, endpoints), mirrors',
    entries: [
      'huggingface.co',
      'cdn-lfs.huggingface.co',
      'cdn-lfs.hf.co',
      'cdn-lfs-us-1.hf.co',
      'cdn-lfs-eu-1.hf.co',
      '*.xethub.hf.co',
      '*.cdn.hf.co',
    ],
  },
]

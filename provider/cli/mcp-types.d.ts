/** The types of the Model Context Protocol's SDK name one of browsers, which Node has too, under no name. */
type HeadersInit = NonNullable<RequestInit['headers']>

"""Every operation of the client, once, as a flow that builds the request and reads the answer; see `messages`."""

"""The outbox: webhooks, and the requests of privacy backends that they answer."""

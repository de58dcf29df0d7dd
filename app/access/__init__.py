"""Who may ask for what: API keys with scopes, and the scope that each route needs."""

"""DynFrs: a forest of extremely randomized trees that learns and unlearns single samples."""

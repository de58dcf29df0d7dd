"""Programs that talk to a server of Oubli. They import neither `oubli.app` nor `oubli.core`."""

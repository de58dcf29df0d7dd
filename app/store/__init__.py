"""What is kept on disk: `directory` holds the lock, `reservations` the high-water marks, `snapshots` the model.

    oubli-data/
      lock                          held by the running server, with its process id
      reserved.json                 no id and no version up to these marks is given out again
      snapshot-00000007.safetensors the newest two generations, the newest is read at start
      snapshot-00000008.safetensors

Names that begin with a dot and end in .tmp are unfinished; they are removed at start.
"""

"""MLServer with scikit-learn's ExtraTrees; runs in an environment of its own, which has neither Oubli nor its packages.

python mlserver_peer.py fit DATA.npz FOLDER       train on the arrays X and y, and write the folder that is served
python mlserver_peer.py serve FOLDER PORT         serve it
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

N_TREES = 100


def fit(data: Path, folder: Path, name: str = "adult") -> None:
    """Train, and write the model beside the settings with which it is served."""
    import joblib
    import numpy as np
    from sklearn.ensemble import ExtraTreesClassifier

    with np.load(data) as held:
        model = ExtraTreesClassifier(N_TREES, random_state=0).fit(held["X"], held["y"])
    folder.mkdir(parents=True, exist_ok=True)
    joblib.dump(model, folder / "model.joblib")
    parameters = {"uri": "./model.joblib", "version": "1"}
    settings = {"name": name, "implementation": "mlserver_sklearn.SKLearnModel", "parameters": parameters}
    (folder / "model-settings.json").write_text(json.dumps(settings), encoding="utf-8")


def serve(folder: Path, port: str) -> None:
    """Serve in this process: on one core a process for each model would only be in the way."""
    free = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free.append(str(probe.getsockname()[1]))
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": port, "GRPC_PORT": free[0], "METRICS_PORT": free[1]}
    quiet = {"PARALLEL_WORKERS": "0", "DEBUG": "false"}
    os.environ.update({f"MLSERVER_{key}": value for key, value in {**settings, **quiet}.items()})
    from mlserver.cli import main

    sys.argv = ["mlserver", "start", str(folder)]
    main()


if __name__ == "__main__":
    command, first, second = sys.argv[1:4]
    if command == "fit":
        fit(Path(first), Path(second))
    else:
        serve(Path(first), second)

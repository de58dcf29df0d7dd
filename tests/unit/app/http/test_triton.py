"""Triton's own client of the Open Inference Protocol."""

from itertools import product
from typing import Any

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import triton_to_np_dtype

from tests.unit.app.hosted import hosted
from tests.unit.app.support import make_service, rows


def test_it_asks_for_health_and_metadata_and_predicts_in_json_and_in_bytes() -> None:
    with hosted(make_service()) as host, triton.InferenceServerClient(f"127.0.0.1:{host.port}") as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        for version, is_ready in (("", True), ("1", True), ("2", False)):
            assert client.is_model_ready("oubli", version) == is_ready
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        metadata = client.get_model_metadata("oubli")
        assert metadata["versions"] == ["1"]
        for n in (1, 7, 500):
            sent: list[list[Any]] = [[None, *rows(1)[0][1:]], *rows(n)[1:]]
            expected = host.ask("POST", "/predict", {"instances": sent})[1]
            version = expected.pop("model_version")
            for is_binary, is_answered_in_bytes in product((True, False), (True, False, None)):
                inputs = []
                for told, column in zip(metadata["inputs"], zip(*sent, strict=True), strict=True):
                    cells = [cell.encode() if isinstance(cell, str) else cell for cell in column]
                    array = np.array(cells, triton_to_np_dtype(told["datatype"]))
                    inputs.append(triton.InferInput(told["name"], [n], told["datatype"]))
                    inputs[-1].set_data_from_numpy(array, binary_data=is_binary)
                outputs = [triton.InferRequestedOutput(name, binary_data=is_answered_in_bytes) for name in expected]
                wanted = None if is_answered_in_bytes is None else outputs
                answer = client.infer("oubli", inputs, outputs=wanted, request_id="r-1")
                told = answer.get_response()
                assert (told["id"], told["parameters"]) == ("r-1", {"model_version": version})
                for name, values in expected.items():
                    found = answer.as_numpy(name).tolist()
                    assert [one.decode() if isinstance(one, bytes) else one for one in found] == values

"""Requests for fuzzing, drawn from a seed: right ones, wrong ones, and bytes that are hardly requests."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pyarrow as pa
import zstandard

from tests.unit.app.http.bulk_cases import arrow

SECRET = "SEKRET-Ω"  # in all texts that are sent
SECRET_NUMBER = "98765432198765"  # in all long numbers
SECRETS = (b"SEKRET", SECRET_NUMBER.encode())
_KNOWN_IDS = ("c1", "c2", "c3", "c50", "n1", "n2", "7", "search", f"{SECRET}-1", f"{SECRET}-2")
# The targets of each method, words apart.
_TARGETS = {
    "POST": (
        "/samples/search /samples/batch-delete /samples/absence-proofs /subjects/restrict /subjects/release "
        f"/subjects/retain /subjects/export /snapshot /model/{SECRET} /webhooks/dead-letters/{SECRET}/redeliver "
        "/opendsr/v2/requests /model/states /predict/without /explain /explain /events"
    ),
    "GET": (
        f"/samples?openings=true&limit=2 /samples?openings={SECRET} /subjects/restrict /exports/{SECRET} "
        f"/jobs/{SECRET}/result?format={SECRET} /samples/c1 /samples/{SECRET} /samples?subject={SECRET}&limit=2 "
        f"/samples?limit=99999999999999999999 /samples?id=c1 /samples?cursor={SECRET} /samples?limit=3&format=csv "
        f"/model /snapshot /snapshot/file /jobs/{SECRET} /jobs/{SECRET}/events /erasures/{SECRET} "
        f"/erasures?ref={SECRET} /erasures?status={SECRET}&limit=2 /webhooks/dead-letters?cursor={SECRET} "
        f"/webhooks/dead-letters /opendsr/v2/discovery /opendsr/v2/requests/{SECRET} /opendsr/v2/{SECRET} "
        f"/ledger?cursor={SECRET} /ledger/{SECRET}/proof /ledger/consistency?from={SECRET} /erasures/{SECRET}/proof "
        f"/erasures/{SECRET}/opening /log/tile/0/{SECRET} /log/tile/{SECRET}/000 /model/states/{SECRET} "
        f"/model/states?cursor={SECRET} /model/states/1?trees={SECRET} /model/states/1?trees=true "
        f"/model/states?limit=2 /influence/{SECRET} /predict/without/{SECRET} /model/importances "
        f"/model/trees/0?node=l&levels=1 /model/trees/{SECRET} /model/trees/1?node={SECRET} "
        f"/model/trees/1?levels={SECRET} /model/columns /model/kinds /access /events?topic={SECRET} "
        "/metrics/events /keys /ledger/keys /v2 /v2/health/live /v2/health/ready /v2/models/oubli "
        f"/v2/models/oubli/versions/1 /v2/models/{SECRET}/ready /v2/models/oubli/versions/{SECRET}/ready "
        f"/v2/{SECRET} /readyz /readyz?for=changes /readyz?for={SECRET} /healthz /docs /docs/page.js /{SECRET} "
        f"http://127.0.0.1/model http://{SECRET}.example/model //model /model?% /%00"
    ),
    "PUT": f"/samples/c5 /samples/{SECRET} /samples?id={SECRET} /snapshot/file /v2/models/oubli/infer",
    "DELETE": (
        f"/samples/search /samples/batch%2Ddelete /samples?id=c9&id=nobody /samples?id={SECRET}&ref={SECRET} "
        f"/samples /opendsr/v2/requests/{SECRET}"
    ),
    "HEAD": "/events /events?topic=metrics",
    "OPTIONS": "/samples *",
    "PATCH": "/samples/c1",
    "TRACE": "/model",
    "CONNECT": "127.0.0.1:80",
    "BREW": "/model",
}
_ROUTES = [("GET", ""), *((method, target) for method, named in _TARGETS.items() for target in named.split())]
_INFER = ("/v2/models/oubli/infer",) * 6 + ("/v2/models/oubli/versions/1/infer", f"/v2/models/{SECRET}/infer")
_DATATYPES = ("FP64", "FP32", "FP16", "INT64", "UINT8", "BOOL", "BYTES", "BYTES", SECRET)
_NUMBERS = ("1", "-3", "2.5", "0", "-0.0", "1e39", "1e999", "1e-400", "16777217", "NaN", "Infinity", "01", "+1", "0x1")
_TEXTS = ('"a"', '"b"', f'"{SECRET}"', '"\\ud800"', '"\\u0000"', '""', '"' + SECRET * 40 + '"', '"\\x"', "'a'")
_OTHER_VALUES = ("null", "true", "false", "[]", "{}", f'["{SECRET}"]', f'{{"{SECRET}": 1}}')
_HOSTS = ("127.0.0.1:8000", "LOCALHOST", "[::1]:80", f"{SECRET}.example", "", "[::1]evil", "a b", "u@127.0.0.1")
_HOSTS += ("127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1,127.0.0.1", "[", "\u00e9", "127.0.0.1.")
_ORIGINS = ("http://127.0.0.1", "https://127.0.0.1", "http://127.0.0.1:81", "null", "", f"http://{SECRET}", "http://[")
_LENGTHS = ("0", "3", "+3", "-1", "3, 3", "0x3", "3 3", "99999999999999999999", "9" * 5000, "", "1e3", "20000000")
_ENCODINGS = ("chunked", "Chunked", "gzip, chunked", "chunked, gzip", "identity", "chunked, chunked", "", "xchunked")
_CSV, _NDJSON, _ARROW = _TABLES = ("text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream")
_TYPES = (
    *_TABLES, "text/csv; charset=latin1", "application/json; charset=utf-8", "Application/JSON", "text/plain", "",
    "application/jsonx", f"a/{SECRET}",
)  # fmt: skip
_VALUES = (
    ("Host", _HOSTS), ("Origin", _ORIGINS), ("Content-Length", _LENGTHS), ("Transfer-Encoding", _ENCODINGS),
    ("Content-Type", _TYPES), ("Authorization", ("Basic x", "Bearer", f"Bearer {SECRET}", "")),
)  # fmt: skip
_LINES = (
    ("Expect", "100-continue"), ("Expect", SECRET), ("Connection", "close"), ("Connection", "Keep-Alive"),
    ("Connection", "upgrade"), ("Upgrade", "h2c"), ("Content-Encoding", "gzip"), ("Content-Encoding", "zstd"),
    ("Content-Encoding", f"{SECRET}, gzip"), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-origin"),
    ("Idempotency-Key", f"{SECRET}-1"), ("Idempotency-Key", "x" * 300), ("Min-Version", "3"), ("Min-Version", "999"),
    ("Min-Version", SECRET), ("Accept", "text/csv"), ("Accept", "application/x-ndjson;q=0.5, */*;q=0.1"),
    ("Accept", f"text/{SECRET}"), ("X-HTTP-Method-Override", "DELETE"), ("X-Forwarded-For", "10.0.0.1"),
    ("Cookie", SECRET * 100), ("X-Long", "x" * 70_000), ("X-Folded", "a\r\n b"), ("X-Bare", "a\nX-Next: b"),
    ("X-Nul", "a\0b"), ("X Space", "a"), ("X-Before ", "a"), (" X-Indent", "a"), ("", "a"), ("X-\u00e9", SECRET),
)  # fmt: skip

_FEATURES = b'"features": [1, "a", true]'
_BODIES = (
    b"", b"{}", b"[]", b"null", b"\xff\xfe", b"\xef\xbb\xbf{}", SECRET.encode(), b"[" * 100_000, b" " * 20_000,
    b'{"instances": ' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"instances": ' + b"[" * 40 + b"]" * 40 + b"}",
    b'{"instances": [[' + SECRET_NUMBER.encode() * 400 + b', "a", true]]}',
    b'{"samples": [{"id": ' + SECRET_NUMBER.encode() * 400 + b", " + _FEATURES + b', "label": "yes"}]}',
    b"{" + _FEATURES + b', "label": "no"}',
    *(text.encode() for text in (
        '{"instances": [[1, "a", true]], "receipt": true}',
        f'{{"instances": [[1, "a", true]], "receipt": "{SECRET}"}}',
        '{"instances": [[1, "a", true]], "change": {"columns": 2}}',
        f'{{"instances": [[1, "{SECRET}", true]], "change": {{"features": ["{SECRET}"]}}}}',
        f'{{"instances": [[1, "a", null]], "change": {{"target": "{SECRET}"}}}}',
        f'{{"subject": "{SECRET}"}}', f'{{"ids": ["{SECRET}", "c9"]}}', '{"ids": ["c8"], "subjects": ["s1"]}',
        '{"ids": ["c9", "c8"], "list_found": true}', f'{{"subjects": ["s3", "s4"], "list_found": "{SECRET}"}}',
        '{"subjects": ["s1", "s2"], "seconds": 86400}', f'{{"subjects": ["{SECRET}"], "seconds": "{SECRET}"}}',
        f'{{"ids": [], "ref": "{SECRET}"}}', f'{{"features": [1, "{SECRET}", 7], "label": "no"}}',
        f'{{"parameters": {{"{SECRET}": 1}}}}', f'{{"kind": "{SECRET}"}}',
    )),
)  # fmt: skip
_CELLS = ("1", "", "a", "true", "yes", "c1", SECRET, SECRET_NUMBER, '"a"', '"', "1e999", "nan", "\0", f"{SECRET},")

_gzip = partial(gzip.compress, mtime=0)
_ZSTD = zstandard.ZstdCompressor().compress


class Cases:
    """Draws what one connection sends, the same for the same seed; an empty text among the keys is none."""

    def __init__(self, seed: int, keys: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._keys = keys

    def connection(self) -> tuple[int, list[bytes]]:
        """Return how many requests it has, and the pieces in which they are sent."""
        draw = self._random
        n = draw.choice((1, 1, 2, 3, 6))
        requests = [self._request() for _ in range(n)]
        if draw.random() < 0.2:  # the same head again: known heads
            requests += [requests[-1]] * 2
        data = b"".join(requests)
        how = draw.random()
        if how < 0.4:
            return len(requests), requests
        n_cuts = draw.choice((0, 1, 2, 5, 20)) if how < 0.95 else min(len(data), 400)
        cuts = sorted({0, len(data), *(draw.randrange(len(data) + 1) for _ in range(n_cuts))})
        return len(requests), [data[a:b] for a, b in pairwise(cuts)]

    def _request(self) -> bytes:
        draw = self._random
        kind, json_length, given = draw.random(), None, "application/json"
        if kind < 0.3:
            method, target, body = "POST", "/predict", self._body("instances", self._row)
        elif kind < 0.5:
            method, target, body = "POST", "/samples", self._body("samples", self._sample)
        elif kind < 0.6:
            method, target = "POST", draw.choice(_INFER)
            json_length, body = self._inference()
        elif kind < 0.7:
            ids = (*_KNOWN_IDS, "a%2Fb", "%ff", "%", "x" * 300)
            method, target, body = "DELETE", "/samples/" + draw.choice(ids), b""
        elif kind < 0.8:
            method, target, given = "POST", draw.choice(("/predict", "/samples")), draw.choice(_TABLES)
            body = self._table(target, given)
        else:
            method, target = draw.choice(_ROUTES)
            body = b"" if method in ("GET", "DELETE", "OPTIONS") else self._random.choice(_BODIES)
        headers = [("Host", "127.0.0.1")]
        key = draw.choice(self._keys)
        if key:
            headers.append(draw.choice((("X-API-Key", key), ("Authorization", f"Bearer {key}"))))
        if body or method == "POST":
            headers += [("Content-Type", given), ("Content-Length", str(len(body)))]
        if given in _TABLES and draw.random() < 0.7:
            headers.append(("Accept", draw.choice((*_TABLES, "application/json"))))
        if json_length is not None:
            lengths = (*(json_length,) * 9, 3, len(body) + 1, SECRET)
            headers.append(("Inference-Header-Content-Length", str(draw.choice(lengths))))
        if draw.random() < 0.2:
            headers, body = self._encoded(headers, body)
        if draw.random() < 0.5:
            headers, body = self._odd(headers, body)
        version = draw.choice(("1.1",) * 20 + ("1.0", "0.9", "2.0", "1.2", "9"))
        lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
        end = "\n" if draw.random() < 0.02 else "\r\n"
        data = (end.join(lines) + end + end).encode("utf-8", "surrogatepass") + body
        return self._mutated(data) if draw.random() < 0.15 else data

    def _table(self, path: str, kind: str) -> bytes:
        draw = self._random
        n = draw.choice((0, 1, 1, 2, 3, 12, 40))
        if kind == _ARROW:
            n = draw.choice((1, 5, 30))
            columns = {"age": [7] * n, "job": [SECRET] * n, "member": [True] * n}
            data = arrow(pa.table(columns if path == "/predict" else {**columns, "income": ["yes"] * n}), 7)
            data = data if draw.random() < 0.5 else self._mutated(data)
        elif kind == _NDJSON:
            rows = [self._row() if path == "/predict" else self._sample() for _ in range(n)]
            data = "\n".join(rows).encode("utf-8", "surrogatepass")
        else:
            names = ["age", "job", "member", *(["income", "id"] if path == "/samples" else [])]
            if draw.random() < 0.2:
                draw.shuffle(names)
            if draw.random() < 0.1:
                names.append(draw.choice((SECRET, "age", "subject", "expires_at", "weight", "readd", "")))
            good = {"age": "3", "job": "b", "member": "false", "income": "no"}
            rows = [",".join(
                good.get(name, draw.choice(_CELLS)) if draw.random() < 0.9 else draw.choice(_CELLS) for name in names
            ) for _ in range(n)]  # fmt: skip
            data = draw.choice(("\n", "\n", "\r\n", "\r")).join([",".join(names), *rows]).encode()
        return data[: draw.randrange(len(data) + 1)] if draw.random() < 0.05 else data

    def _odd(self, headers: list[tuple[str, str]], body: bytes) -> tuple[list[tuple[str, str]], bytes]:
        """Change headers: replaced, doubled, left out, added; or send the body in chunks."""
        draw = self._random
        for _ in range(draw.choice((1, 1, 2))):
            name, values = draw.choice((*_VALUES, ("X-API-Key", tuple(self._keys))))
            line = (name, draw.choice(values)) if draw.random() < 0.5 else draw.choice(_LINES)
            how = draw.random()
            if how < 0.5:
                headers = [header for header in headers if header[0] != line[0]]
            if how < 0.9:
                headers.insert(draw.randrange(len(headers) + 1), line)
        if draw.random() < 0.02:
            headers += [(f"X-{i}", "v") for i in range(draw.choice((90, 96, 97, 98, 120)))]
        if draw.random() < 0.25:
            headers = [header for header in headers if header[0] != "Content-Length"]
            headers.append(("Transfer-Encoding", "chunked"))
            body = self._chunks(body)
        return headers, body

    def _encoded(self, headers: list[tuple[str, str]], body: bytes) -> tuple[list[tuple[str, str]], bytes]:
        """Compress a body, at times not as its header says, cut short, damaged, or in several members."""
        draw = self._random
        name = draw.choice(("gzip", "zstd", "x-gzip", "GZIP"))
        encode = _ZSTD if name == "zstd" else _gzip
        cut = draw.randrange(len(body) + 1)
        encoded = draw.choice((
            *(encode(body),) * 3, encode(body[:cut]) + encode(body[cut:]), encode(b"") + encode(body), body,
            encode(body)[:-1], encode(body) + SECRET.encode(), self._mutated(encode(body)),
            encode(body) + encode(b" " * 30_000),  # above the limit when it is decoded
        ))  # fmt: skip
        wrong = {"gzip": "zstd", "zstd": "gzip"}
        name = wrong.get(name, name) if draw.random() < 0.05 else name
        headers = [header for header in headers if header[0] != "Content-Length"]
        more = [("Content-Encoding", name), ("Content-Length", str(len(encoded)))]
        if draw.random() < 0.5:
            more.append(("Accept-Encoding", draw.choice(("gzip", "zstd", "zstd, gzip;q=0", SECRET))))
        return [*headers, *more], encoded

    def _chunks(self, body: bytes) -> bytes:
        draw = self._random
        cuts = sorted({0, len(body), *(draw.randrange(len(body) + 1) for _ in range(3))})
        extension = draw.choice((b"", b"", b";a=b", b";" + SECRET.encode(), b";" + b"x" * 1000))
        parts = [b"%x%b\r\n%b\r\n" % (b - a, extension, body[a:b]) for a, b in pairwise(cuts)]
        trailer = draw.choice((b"", b"", b"Host: 127.0.0.1\r\n", b"X: %b\r\n" % SECRET.encode(), b"X: 1\r\n" * 150))
        end = draw.choice((b"0\r\n", b"0\r\n", b"00\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n"))
        return b"".join(parts) + end + trailer + b"\r\n"

    def _mutated(self, data: bytes) -> bytes:
        """Change some bytes."""
        draw = self._random
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 5))):
            place = draw.randrange(len(changed) + 1)
            how = draw.random()
            if how < 0.4:
                changed[place : place + 1] = bytes([draw.randrange(256)])
            elif how < 0.7:
                del changed[place : place + draw.choice((1, 1, 4, 40))]
            else:
                odd = draw.choice((b"\r\n", b"\n", b"\0", b" ", b":", b"\xff", changed[place : place + 9]))
                changed[place:place] = odd
        return bytes(changed)

    # --- bodies

    def _body(self, key: str, item: Callable[[], str]) -> bytes:
        draw = self._random
        kind = draw.random()
        if kind < 0.1:
            return self._random.choice(_BODIES)
        n = draw.choice((1, 1, 1, 2, 3, 12, 13))
        text = f'{{"{key}": [{", ".join(item() for _ in range(n))}]'
        if kind < 0.2:
            text += draw.choice((f', "{SECRET}": 1', f', "{key}": []', f', "x": {self._value()}'))
        data = (text + "}").encode("utf-8", "surrogatepass")
        return data[: draw.randrange(len(data))] if kind > 0.97 else data

    def _value(self) -> str:
        draw = self._random
        kind = draw.random()
        if kind < 0.4:
            return draw.choice(_NUMBERS)
        if kind < 0.8:
            return draw.choice(_TEXTS)
        long = SECRET_NUMBER * draw.choice((1, 2, 360))
        return draw.choice((*_OTHER_VALUES, long, f"1e{long}"))

    def _row(self) -> str:
        draw = self._random
        if draw.random() < 0.7:
            return f'[{draw.randrange(40)}, "{draw.choice("abc")}", {draw.choice(("true", "false", "null"))}]'
        cells = [self._value() for _ in range(draw.choice((3, 3, 3, 2, 4)))]
        if draw.random() < 0.3:
            names = map(json.dumps, draw.sample(("age", "job", "member", SECRET), 3))
            return "{" + ", ".join(f"{name}: {cell}" for name, cell in zip(names, cells, strict=False)) + "}"
        return "[" + ", ".join(cells) + "]"

    def _inference(self) -> tuple[int | None, bytes]:
        """A request of the inference protocol, mostly right: the length of its JSON if there is more, and all."""
        draw = self._random
        if draw.random() < 0.1:
            return None, self._random.choice(_BODIES)
        n = draw.choice((1, 1, 1, 1, 2, 2, 3, 12, 13, int(SECRET_NUMBER)))
        wrong = 0.05 if draw.random() < 0.5 else 0.0
        count = min(n, 13)
        inputs, behind = [], b""
        is_binary = draw.random() < 0.4
        for name, datatype in (("age", "FP32"), ("job", "BYTES"), ("member", "BOOL")):
            if draw.random() < wrong:
                name, datatype = draw.choice((name, SECRET)), draw.choice(_DATATYPES)
            shape = f"[{n}, 3]" if draw.random() < wrong else draw.choice((f"[{n}]", f"[{n}, 1]"))
            head = f'"name": "{name}", "datatype": "{datatype}", "shape": {shape}'
            if is_binary:
                data = {"FP32": b"\x00\x00\x80\x3f", "BYTES": b"\x01\x00\x00\x00a"}.get(datatype, b"\x01") * count
                if draw.random() < wrong:
                    data = draw.choice((data[:-1], data + b"\xff", SECRET.encode() * count))
                size = draw.choice((0, -1, 2**40, SECRET_NUMBER)) if draw.random() < wrong else len(data)
                inputs.append(f'{{{head}, "parameters": {{"binary_data_size": {size}}}}}')
                behind += data
            else:
                right = {"FP32": "1.5", "BYTES": '"a"', "BOOL": "true"}.get(datatype, "1")
                cells = [self._value() if draw.random() < wrong else right for _ in range(count)]
                inputs.append(f'{{{head}, "data": [{", ".join(cells)}]}}')
        more = draw.choice(("", "", f', "id": "{SECRET}"', ', "parameters": {"binary_data_output": true}'))
        more += draw.choice(("",) * 6 + (f', "outputs": [{{"name": "{SECRET}"}}]', f', "{SECRET}": 1'))
        header = f'{{"inputs": [{", ".join(inputs)}]{more}}}'.encode("utf-8", "surrogatepass")
        return (len(header) if is_binary else None), header + behind

    def _sample(self) -> str:
        draw = self._random
        if draw.random() < 0.1:
            return self._value()
        label = draw.choice(('"yes"', '"no"', '"yes"', self._value()))
        fields = [f'"features": {self._row()}', f'"label": {label}']
        if draw.random() < 0.6:
            fields.append(f'"id": {draw.choice((*map(json.dumps, _KNOWN_IDS), self._value()))}')
        if draw.random() < 0.2:
            name = draw.choice(("subject", "readd", "expires_at", "weight", "features", SECRET))
            fields.append(f'"{name}": {self._value()}')
        return "{" + ", ".join(fields) + "}"

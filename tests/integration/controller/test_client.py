# SPDX-License-Identifier: GPL-2.0-or-later
"""A client that a generator made from the served OpenAPI document: typed, and it works."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from testbed import patience

GENERATOR = Path(sys.executable).parent / "openapi-python-client"


@pytest.fixture(scope="module")
def generated(daemon, tmp_path_factory):
    """The package `sluice_client`, and a client of the daemon."""
    folder = tmp_path_factory.mktemp("client")
    document = daemon.request("GET", "/v1/openapi.json", headers={})
    (folder / "openapi.json").write_text(document.text)
    (folder / "config.json").write_text(
        json.dumps({"package_name_override": "sluice_client", "post_hooks": []})
    )
    command = [GENERATOR, "generate", "--path", "openapi.json", "--config", "config.json"]
    done = subprocess.run(
        [*command, "--meta", "none", "--output-path", "sluice_client", "--fail-on-warning"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience.seconds(120),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        client = importlib.import_module("sluice_client").AuthenticatedClient(
            base_url="http://sluiced/v1",
            token=daemon.token(),
            httpx_args={"transport": httpx.HTTPTransport(uds=str(daemon.socket), verify=False)},
        )
        yield importlib.import_module, client
    finally:
        sys.path.remove(str(folder))


def test_it_sets_a_limit_and_reads_typed_answers(daemon, generated):
    load, client = generated
    api, models = "sluice_client.api", load("sluice_client.models")
    path = "domains_domain_classes_class"
    put_class = load(f"{api}.classes.put_classes_class")
    put_grant = load(f"{api}.domains.put_{path}")
    put_limit = load(f"{api}.domains.put_{path}_limits_resource")
    made = put_class.sync("batch", client=client, body=models.ShapingClassBody(weight=30))
    assert (type(made).__name__, made.weight, made.priority) == ("ShapingClass", 30, 5)
    put_grant.sync("test", "batch", client=client, body=models.GrantBodyInput())
    limit = models.LimitInput(bytes_per_second="5MB/s", burst_bytes=65536)
    answer = put_limit.sync("test", "batch", "blk-read", client=client, body=limit)
    assert isinstance(answer, models.ChangedGranted)
    assert answer.limits.additional_properties["blk-read"].bytes_per_second == 5_000_000
    refused = put_limit.sync(
        "test", "batch", "blk-read", client=client, body=models.LimitInput(bytes_per_second=1)
    )
    assert isinstance(refused, models.Problem)
    assert refused.thing == "limits.blk-read.bytes_per_second" and refused.remedy
    assert (
        daemon.call("GET", "/v1/domains/test/classes/batch")["limits"]["blk-read"]["burst_bytes"]
        == 65536
    )

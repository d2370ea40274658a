"""The files in deploy/: they parse, name the versions that the package names, and hold job files that can be read.

Catches: a release that leaves an old version in a manifest; a field of the job file that changes and is not changed
there; a path, service or secret that is misspelt; an image without a fixed tag; a port that all the world reaches; a
file that no page tells of. Programs that know more (docker compose, helm, systemd-analyze) are asked where installed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from weever_stream import Detector
from weever_stream.job.job import Job, job_of, read_job
from weever_stream.rules.file import read_rules_text
from weever_stream.stream import jars
from weever_stream.stream.java import OLDEST

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "weever"
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
ENVIRON = {
    "KAFKA_SERVERS": "kafka:9092",
    "S3_ENDPOINT": "http://objects:7070",
    "S3_ACCESS_KEY": "weever",
    "KAFKA_JAAS": "jaas",
    "PAGERDUTY_KEY": "key",
    "LAKE": "s3://lake",
}


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def of_project(name: str) -> str:
    found = re.search(rf'^{name} = "(.+)"$', PROJECT, re.M)
    assert found, name
    return found[1]


def requirements() -> dict[str, str]:
    """The dependencies of the package: name to range."""
    listed = re.search(r"^dependencies = \[$(.*?)^\]$", PROJECT, re.M | re.S)
    assert listed
    found = re.findall(r'^ +"([\w.-]+)([^"]*)",$', listed[1], re.M)
    assert len(found) == listed[1].count(",\n")
    return dict(found)


def fits(version: str, wanted: str) -> bool:
    def numbers(one: str) -> list[int]:
        return [int(part) for part in one.split(".")]

    checks = [re.fullmatch(r"(>=|<)([\d.]+)", part) for part in wanted.split(",")]
    assert all(checks), wanted
    return all(
        numbers(version) >= numbers(check[2]) if check[1] == ">=" else numbers(version) < numbers(check[2])
        for check in checks
        if check
    )


VERSION = of_project("version")
SPARK = re.search(r"^ARG PYSPARK_VERSION=(\S+)$", text("deploy/docker/Dockerfile"), re.M)[1]  # type: ignore[index]
COMPOSE = yaml.safe_load(text("docker-compose.yml"))
SERVICES: dict[str, Any] = COMPOSE["services"]
KUBERNETES = list(yaml.safe_load_all(text("deploy/kubernetes/spark-application.yaml")))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
PAGES = [ROOT / "docs" / "deploy.md", *sorted((ROOT / "docs" / "deploy").glob("*.md"))]  # fmt: skip


def resource(kind: str, resources: list[Any] = KUBERNETES) -> Any:
    [found] = [one for one in resources if one["kind"] == kind]
    return found


# ---- all of it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_file_parses_and_names_no_place_of_ours(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    if path.suffix in (".yml", ".yaml") and path.parent.name != "templates":
        assert all(document is not None for document in yaml.safe_load_all(content))
    elif path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".py":
        assert ast.get_docstring(ast.parse(content)), "says what it does"
    elif path.suffix == ".sh":
        assert os.access(path, os.X_OK)
        subprocess.run(["bash", "-n", str(path)], check=True)
    assert not re.search(r"/(?:work|home|Users)/|/tmp/\w", content)


def test_every_file_is_told_of_on_a_page() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        assert name in pages or (CHART in path.parents and "`deploy/helm/weever/`" in pages), name


def test_each_way_has_a_page() -> None:
    ways = {folder.name for folder in DEPLOY.iterdir() if folder.name not in ("grafana", "prometheus", "helm")}
    assert {page.stem for page in PAGES[1:]} == ways
    assert all(f"(deploy/{way}.md)" in text("docs/deploy.md") for way in ways)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_pages_say_what_was_checked_and_lead_somewhere(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    assert "## What was checked" in content
    assert "- Not: " in content.partition("## What was checked")[2]
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", content):
        assert (page.parent / target).exists(), target
    for name in re.findall(r"`((?:deploy|tests)/[\w./@-]+)`", content):
        assert (ROOT / name).exists(), name


def images() -> Iterator[tuple[str, str]]:
    for name, service in SERVICES.items():
        yield name, service["image"]
    yield "SparkApplication", resource("SparkApplication")["spec"]["image"]
    arguments = dict(re.findall(r"^ARG (\w+)=(\S*)$", text("deploy/docker/Dockerfile"), re.M))
    stages: set[str] = set()
    for base, stage in re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text("deploy/docker/Dockerfile"), re.M):
        if base not in stages:
            yield "Dockerfile", re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], base)
        stages.add(stage)


def test_images_have_tags_that_stay() -> None:
    found = list(images())
    assert len(found) > 10
    for where, image in found:
        name, _, tag = image.partition(":")
        assert re.search(r"\d+\.\d+\.\d+", tag), f"{where}: {image}"
        assert "." not in name.split("/")[0], f"{where} names a registry: {image}"


# ---- versions ------------------------------------------------------------------------------------------------


def test_versions_are_those_of_the_project() -> None:
    dockerfile = text("deploy/docker/Dockerfile")
    arguments = dict(re.findall(r"^ARG (\w+)=(\S*)$", dockerfile, re.M))
    wanted = requirements()
    assert fits(arguments["PYSPARK_VERSION"], wanted["pyspark"])
    assert fits(arguments["DELTA_VERSION"], wanted["delta-spark"])
    assert fits(arguments["PYTHON_VERSION"], of_project("requires-python"))
    assert set(re.findall(r"^ARG JAVA_VERSION=(\d+)$", dockerfile, re.M)) == {str(OLDEST)}
    assert f"-t weever-stream:{VERSION} " in dockerfile
    for service in SERVICES.values():
        if service["image"].startswith("weever-stream"):
            assert service["image"].endswith(f":{VERSION}")


def test_the_jars_of_these_versions_are_known() -> None:
    # Not only a fallback to the newest line: the pins beside Spark and Delta name these lines themselves.
    arguments = dict(re.findall(r"^ARG (\w+)=(\S*)$", text("deploy/docker/Dockerfile"), re.M))
    assert ".".join(SPARK.split(".")[:2]) in jars._BESIDE_SPARK
    assert ".".join(arguments["DELTA_VERSION"].split(".")[:2]) in jars._BESIDE_DELTA
    assert any(SPARK in coordinate for coordinate in jars.wanted("kafka", SPARK)[0])


def test_the_broker_is_the_one_that_tests_run() -> None:
    from tests.stream.servers.maven import KAFKA

    assert SERVICES["kafka"]["image"] == SERVICES["topics"]["image"] == f"apache/kafka:{KAFKA}"


def test_kubernetes_names_the_same_versions() -> None:
    spec = resource("SparkApplication")["spec"]
    assert spec["sparkVersion"] == VALUES["spark"]["version"] == SPARK
    assert spec["image"] == f"weever-stream:{VERSION}"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == VERSION


def test_databricks_installs_what_the_project_needs_without_spark() -> None:
    listed = [line for line in text("deploy/databricks/requirements.txt").splitlines() if not line.startswith("#")]
    assert dict(re.findall(r"^([\w.-]+)(.*)$", "\n".join(listed), re.M)) == {
        name: wanted for name, wanted in requirements().items() if name not in ("pyspark", "delta-spark")
    }
    assert f"weever_stream-{VERSION}-py3-none-any.whl" in text("deploy/databricks/install.sh")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_this_version(page: Path) -> None:
    content = page.read_text(encoding="utf-8")
    named = re.findall(r"weever[-_]stream(?:==|:|-| )(\d+\.\d+\.\d+)", content)
    assert set(named) <= {VERSION}
    if page.name == "deploy.md":
        delta = re.search(r"^ARG DELTA_VERSION=(\S+)$", text("deploy/docker/Dockerfile"), re.M)
        assert delta
        assert f"Spark {SPARK}, Delta {delta[1]}" in content
        assert f"Java {OLDEST}" in content


# ---- job files -----------------------------------------------------------------------------------------------


def job_texts() -> dict[str, str]:
    return {
        "kubernetes": resource("ConfigMap")["data"]["job.yaml"],
        "helm": VALUES["job"],
        "compose": text("deploy/compose/job.yaml"),
        "databricks": text("deploy/databricks/job.yaml"),
    }


def job(name: str, folder: Path) -> Job:
    """Reads a job file as `weever run` does, with secrets in a folder instead of where containers have them."""
    (folder / "s3_secret_key").write_text("secret", encoding="utf-8")
    file = folder / "job.yaml"
    file.write_text(job_texts()[name].replace("/run/secrets", str(folder)), encoding="utf-8")
    return read_job(file, ENVIRON)


@pytest.mark.parametrize("name", sorted(job_texts()))
def test_job_files_are_read(name: str, tmp_path: Path) -> None:
    found = job(name, tmp_path)
    assert found.file.rules
    assert found.sinks
    assert not found.state.checkpoint.startswith("/"), "executors on other machines must reach it"
    assert found.state.rule_changes != "ask", "nobody is there to be asked"


@pytest.mark.parametrize("name", ["compose", "kubernetes", "helm"])
def test_jobs_serve_metrics_where_they_are_looked_for(name: str, tmp_path: Path) -> None:
    metrics = job(name, tmp_path).metrics
    assert (metrics.host, metrics.port) == ("0.0.0.0", VALUES["metrics"]["port"])
    assert f"127.0.0.1:{metrics.port}/healthz" in text("deploy/docker/Dockerfile")
    [port] = resource("Service")["spec"]["ports"]
    assert port["targetPort"] == metrics.port
    prometheus = yaml.safe_load(text("deploy/compose/prometheus.yml"))
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == [f"weever:{metrics.port}"]


def test_the_made_up_feed_breaks_every_rule_and_mends_it() -> None:
    scope: dict[str, Any] = {"__name__": "producer"}
    exec(compile(text("deploy/compose/producer.py"), "producer.py", "exec"), scope)
    rules = read_rules_text(text("deploy/compose/job.yaml"))
    detector = Detector(rules.rules, key=rules.key, schema=dict(rules.columns))
    for number, steps in enumerate(islice(scope["rounds"](), 2)):
        broken: set[str] = set()
        for step in steps:
            messages = scope["messages"](step)
            put = [json.loads(message.value) for message in messages if message.value is not None]
            deltas = [detector.upsert(put)] if put else []
            gone = [int(message.key) for message in messages if message.value is None]
            deltas += [detector.delete(gone)] if gone else []
            broken |= {violation.rule for delta in deltas for violation in delta.added}
        assert broken == {rule.name for rule in rules.rules}, f"round {number}"
        assert [detector.count(rule.name) for rule in rules.rules] == [0, 0, 0], f"round {number}"


# ---- docker-compose.yml --------------------------------------------------------------------------------------


def test_compose_services_depend_on_what_is_there() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} depends on {other}"
            if how["condition"] == "service_healthy":
                assert "test" in SERVICES[other]["healthcheck"], f"{other} cannot become healthy"
            else:
                assert how["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no", f"{other} never ends"


def test_compose_listens_on_loopback_only_and_once() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) > 5
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)
    assert all("network_mode" not in service and "privileged" not in service for service in SERVICES.values())


def test_compose_mounts_files_that_are_there_and_volumes_that_are_named() -> None:
    named = set()
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source, target, *mode = mount.split(":")
            assert target.startswith("/")
            if source.startswith("./"):
                assert (ROOT / source).exists(), source
                assert mode == ["ro"], mount
            else:
                named.add(source)
    assert named == set(COMPOSE["volumes"])


def test_compose_secrets_are_given_and_used() -> None:
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    told = text("docs/deploy/compose.md")
    for secret in COMPOSE["secrets"].values():
        assert f"{secret['environment']}=" in told
    for variable in re.findall(r"\$\{(\w+)[^}]*\}", text("docker-compose.yml")):
        assert variable in told, variable
    # Without a default: a password that everybody knows is none.
    assert not re.search(r"\$\{(?:WEEVER_S3_SECRET_KEY|GRAFANA_PASSWORD)(?::?-|\})", text("docker-compose.yml"))


def test_compose_gives_the_job_what_it_refers_to() -> None:
    service = SERVICES["weever"]
    content = text("deploy/compose/job.yaml")
    for name in re.findall(r"\$\{env:(\w+)\}", content):
        assert name in service["environment"], name
    for path in re.findall(r"\$\{file:/run/secrets/(\w+)\}", content):
        assert path in service["secrets"], path
    for script, name in (("producer", "producer"), ("bucket", "bucket")):
        for variable in re.findall(r'os\.environ(?:\.get\(|\[)"(\w+)"', text(f"deploy/compose/{script}.py")):
            assert variable in SERVICES[name]["environment"], variable
    read = re.search(r"source:.*?topic: (\w+)", content, re.S)
    assert read
    assert read[1] == SERVICES["producer"]["environment"]["KAFKA_TOPIC"]
    made = re.findall(r"^topic (\w+) ", SERVICES["topics"]["command"][0], re.M)
    assert set(re.findall(r"topic: (\w+)", content)) == set(made)


def test_compose_hosts_are_services(tmp_path: Path) -> None:
    addresses = [*ENVIRON.values(), text("deploy/compose/job.yaml"), text("deploy/compose/prometheus.yml")]
    addresses += [str(service.get("environment", "")) for service in SERVICES.values()]
    addresses += [text("deploy/compose/grafana/datasources.yml")]
    hosts = set(re.findall(r"(?:http://|spark://|[\"' @])([a-z][a-z-]+):\d{4,5}\b", "\n".join(addresses)))
    assert {"alertmanager", "objects", "prometheus", "weever"} <= hosts <= set(SERVICES)
    [alert] = job("compose", tmp_path).alerts
    assert alert.allow_hosts == ["alertmanager"]


def test_compose_gives_time_to_end() -> None:
    assert int(SERVICES["weever"]["stop_grace_period"].removesuffix("s")) >= 45


def test_docker_compose_accepts_it() -> None:
    program = os.environ.get("DOCKER_COMPOSE") or shutil.which("docker-compose")
    command = [program] if program else ["docker", "compose"]
    if program is None and not (
        shutil.which("docker") and subprocess.run([*command, "version"], capture_output=True).returncode == 0
    ):
        pytest.skip("no docker compose here; DOCKER_COMPOSE names one")
    asked = [*command, "-f", str(ROOT / "docker-compose.yml"), "--profile", "demo", "config", "--format", "json"]
    given = {**os.environ, "WEEVER_S3_SECRET_KEY": "s3", "GRAFANA_PASSWORD": "grafana"}
    done = subprocess.run(asked, capture_output=True, text=True, env=given, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == set(SERVICES)
    given.pop("WEEVER_S3_SECRET_KEY")
    refused = subprocess.run(asked, capture_output=True, text=True, env=given, cwd=ROOT)
    assert refused.returncode != 0
    assert "docs/deploy/compose.md" in refused.stderr


# ---- Kubernetes ----------------------------------------------------------------------------------------------


def assert_application(resources: list[Any]) -> None:
    spec = resource("SparkApplication", resources)["spec"]
    assert (spec["type"], spec["mode"], spec["restartPolicy"]["type"]) == ("Python", "cluster", "Always")
    assert spec["restartPolicy"]["onFailureRetryInterval"] > 0
    main = spec["mainApplicationFile"].removeprefix("local://")
    assert re.search(rf"^COPY .*spark-submit/main\.py {Path(main).parent}/$", text("deploy/docker/Dockerfile"), re.M)
    assert spec["driver"]["terminationGracePeriodSeconds"] >= 45
    volumes = {volume["name"] for volume in spec["volumes"]}
    accounts = {one["metadata"]["name"] for one in resources if one["kind"] == "ServiceAccount"}
    for pod in (spec["driver"], spec["executor"]):
        assert {mount["name"] for mount in pod["volumeMounts"]} <= volumes
        assert pod["podSecurityContext"]["runAsNonRoot"] is True
        users = set(re.findall(r"^USER (\d+):", text("deploy/docker/Dockerfile"), re.M))
        assert users == {str(pod["podSecurityContext"]["runAsUser"])}
        assert pod["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert pod["serviceAccount"] in accounts
    [job_volume] = [volume for volume in spec["volumes"] if "configMap" in volume]
    assert job_volume["configMap"]["name"] == resource("ConfigMap", resources)["metadata"]["name"]
    [mounted] = [mount for mount in spec["driver"]["volumeMounts"] if mount["name"] == job_volume["name"]]
    assert spec["arguments"][:2] == ["run", f"{mounted['mountPath']}/job.yaml"]
    application = resource("SparkApplication", resources)["metadata"]["name"]
    selector = resource("Service", resources)["spec"]["selector"]
    assert selector == {"sparkoperator.k8s.io/app-name": application, "spark-role": "driver"}
    assert resource("RoleBinding", resources)["subjects"][0]["name"] == spec["driver"]["serviceAccount"]
    assert spec["executor"]["serviceAccount"] != spec["driver"]["serviceAccount"]
    named = re.findall(r"\$\{env:(\w+)\}", resource("ConfigMap", resources)["data"]["job.yaml"])
    assert not named or spec["driver"].get("envFrom") or spec["driver"].get("env")


def test_the_application_holds_together() -> None:
    assert {one["metadata"]["namespace"] for one in KUBERNETES} == {"weever"}
    assert_application(KUBERNETES)


def test_the_values_fit_their_schema_which_refuses_mistakes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    assert not list(validator.iter_errors(VALUES))
    for wrong in (
        {**VALUES, "image": {"repository": "x", "tag": "latest"}},
        {**VALUES, "driver": {**VALUES["driver"], "terminationGracePeriodSeconds": 30}},
        {**VALUES, "executor": {**VALUES["executor"], "memory": "4 GB"}},
        {**VALUES, "spark": {**VALUES["spark"], "version": "3.5.1"}},
        {**VALUES, "jobb": ""},
    ):
        assert list(validator.iter_errors(wrong))


def test_templates_use_values_that_are_there() -> None:
    for path in (CHART / "templates").iterdir():
        for name in re.findall(r"\.Values\.([\w.]+)", path.read_text(encoding="utf-8")):
            at = VALUES
            for step in name.split("."):
                assert step in at, f"{path.name}: {name}"
                at = at[step]
        if path.suffix == ".yaml":
            kinds = re.findall(r"^kind: (\w+)$", path.read_text(encoding="utf-8"), re.M)
            assert kinds, path.name


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--set", "secrets={packages-secrets}", "--set", "env.A=b", "--set", "metrics.serviceMonitor.enabled=true"],
        ["--set", "driver.nodeSelector.a=b", "--set", "executor.tolerations[0].key=x", "--set", "image.tag=9.9.9"],
    ],
    ids=["plain", "secrets", "placed"],
)
def test_helm_renders_the_chart(options: list[str], tmp_path: Path) -> None:
    helm = os.environ.get("HELM") or shutil.which("helm")
    if helm is None:
        pytest.skip("no helm here; HELM names one")
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True, capture_output=True)
    command = [helm, "template", "packages", str(CHART), "-n", "weever", "--kube-version", "1.31.0", *options]
    secrets = ["--set", "secrets={some}"] if "secrets={packages-secrets}" not in options else []
    done = subprocess.run([*command, *secrets], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    resources = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert_application(resources)
    assert {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in resources} == {"weever"}
    assert ("ServiceMonitor" in {one["kind"] for one in resources}) == ("secrets={packages-secrets}" in options)
    tag = "9.9.9" if "image.tag=9.9.9" in options else VERSION
    assert resource("SparkApplication", resources)["spec"]["image"] == f"weever-stream:{tag}"
    rendered = read_rules_text(resource("ConfigMap", resources)["data"]["job.yaml"])
    assert job_of(rendered.resolve(ENVIRON)) == job_of(read_rules_text(VALUES["job"]).resolve(ENVIRON))


def test_the_operator_knows_every_field() -> None:
    models = pytest.importorskip("kubeflow_spark_api.models", reason="pip install kubeflow-spark-api")
    [model] = [
        getattr(models, name)
        for name in dir(models)
        if name.lower().endswith("v1beta2sparkapplication")
    ]  # fmt: skip
    assert not list(lost(resource("SparkApplication"), model.from_dict(resource("SparkApplication")).to_dict()))


# ---- Databricks, systemd -------------------------------------------------------------------------------------


def lost(given: Any, kept: Any, at: str = "") -> Iterator[str]:
    """Fields that a model has dropped: those that it does not know."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name not in kept:
                yield f"{at}.{name}"
            else:
                yield from lost(value, kept[name], f"{at}.{name}")
    elif isinstance(given, list):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{at}[{number}]")


def test_the_bundle_holds_together() -> None:
    bundle = yaml.safe_load(text("deploy/databricks/databricks.yml"))
    for variable in re.findall(r"\$\{var\.(\w+)\}", text("deploy/databricks/databricks.yml")):
        assert variable in bundle["variables"]
    entry = re.search(r"^\[project.scripts\]\n(\w+) = ", PROJECT, re.M)
    assert entry
    for one in bundle["resources"]["jobs"].values():
        assert one["max_concurrent_runs"] == 1, "a second driver on the checkpoint is refused"
        [task] = one["tasks"]
        wheel, cluster = task["python_wheel_task"], task["new_cluster"]
        assert (wheel["package_name"], wheel["entry_point"]) == ("weever_stream", entry[1])
        assert ("--once" in wheel["parameters"]) == ("schedule" in one) == ("continuous" not in one)
        assert cluster["data_security_mode"] == "SINGLE_USER"
        for name in re.findall(r"\$\{env:(\w+)\}", text("deploy/databricks/job.yaml")):
            assert name in cluster["spark_env_vars"]
        assert "WEEVER_FILES" in cluster["spark_env_vars"]


def test_databricks_knows_every_field() -> None:
    jobs = pytest.importorskip("databricks.bundles.jobs", reason="pip install databricks-bundles")
    bundle = yaml.safe_load(text("deploy/databricks/databricks.yml"))
    for one in bundle["resources"]["jobs"].values():
        assert not list(lost(one, jobs.Job.from_dict(one).as_dict()))


def unit() -> dict[str, str]:
    lines = text("deploy/systemd/weever@.service").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=", line))


def test_the_unit_lets_a_job_end_in_good_order() -> None:
    found = unit()
    assert (found["KillSignal"], found["KillMode"]) == ("SIGTERM", "mixed"), "the JVM must not be asked"
    assert int(found["TimeoutStopSec"]) >= 45
    assert (found["SuccessExitStatus"], found["Restart"]) == ("143", "on-failure")
    assert found["User"] == "weever"
    assert "MemoryDenyWriteExecute" not in found, "Java and numba compile"
    assert found["NoNewPrivileges"] == found["PrivateTmp"] == "yes"
    assert found["ProtectSystem"] == "strict"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    there = re.sub(r"^(ExecStart(?:Pre)?=)\S+", rf"\1{shutil.which('true')}", text("deploy/systemd/weever@.service"), flags=re.M)  # fmt: skip
    file = tmp_path / "weever@packages.service"
    file.write_text(there, encoding="utf-8")
    done = subprocess.run([program, "verify", str(file)], capture_output=True, text=True)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "weever@" in line]
    assert done.returncode == 0, done.stderr
    assert not about, about

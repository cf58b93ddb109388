"""`package.toml`: strict, with all problems reported together."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.packages.format.manifest import Manifest, ReactorSettings, read_manifest
from tidemill.packages.format.versions import Requirement, Version, running_python, running_tidemill

WHOLE = """
[package]
name = "market"
version = "1.2.0"
modules = ["market", "market.graphs"]
requires-python = ">=3.11"
requires-tidemill = ">=0.1, <9"
capabilities = ["secret:shop_key", "network:api.example.org", "executor:subprocess"]

[reactors.market]
shared = true

[tasks."daily_report.large"]
retries = 5
timeout = "10m"
pool = "heavy"
queue = "night"
priority = -3
executor = "worker"
labels = ["gpu", "eu"]

[tasks."daily_report.train"]
executor = "kubernetes"
resources = { cpu = "500m", memory = "1Gi", gpu = 1 }
image = "registry.example.org/train:2"

[tasks."daily_report.train".pod.spec]
nodeSelector = { zone = "eu" }
"""


def problems(text: str) -> list[str]:
    """Return what is wrong with a manifest."""
    with pytest.raises(DefinitionError) as raised:
        read_manifest(text.encode())
    return [str(one) for one in raised.value.problems]


def package(lines: str = "", *, name: str = "market", version: str = "1.2.0") -> str:
    """Return a manifest with these lines in its first table."""
    return f'[package]\nname = "{name}"\nversion = "{version}"\n{lines}\n'


def test_everything_that_can_be_said() -> None:
    """The values as they are kept."""
    assert read_manifest(WHOLE.encode()) == Manifest(
        name="market",
        version=Version(1, 2, 0),
        modules=("market", "market.graphs"),
        requires_python=Requirement.parse(">=3.11"),
        requires_tidemill=Requirement.parse(">=0.1, <9"),
        capabilities=("secret:shop_key", "network:api.example.org", "executor:subprocess"),
        reactors={"market": ReactorSettings(shared=True)},
        tasks={
            "daily_report.large": {
                "retries": 5,
                "timeout": 600.0,
                "pool": "heavy",
                "queue": "night",
                "priority": -3,
                "executor": "worker",
                "labels": ("eu", "gpu"),
            },
            "daily_report.train": {
                "executor": "kubernetes",
                "resources": {"cpu": 0.5, "gpu": 1, "memory": 2**30},
                "image": "registry.example.org/train:2",
                "pod": {"spec": {"nodeSelector": {"zone": "eu"}}},
            },
        },
    )


def test_the_least_that_must_be_said() -> None:
    """Without modules there is one of the package's name."""
    read = read_manifest(package().encode())
    assert (read.modules, read.top_level_names, read.unmet_requirements()) == (("market",), ("market",), [])


def test_every_unknown_key_is_reported_at_once_with_its_line() -> None:
    """P-8, behaviour 94: wherever it stands."""
    text = """packages = 1
[package]
name = "market"
versoin = "1.0.0"
version = "1.0.0"
requires_python = ">=3"
[reactors.market]
sharde = true
[tasks."report.large"]
retry = 3
[taskz]
"""
    assert problems(text) == [
        "package.toml:1: unknown key 'packages' in the top (did you mean 'package'?); "
        "it may have package, reactors, tasks",
        "package.toml:4: unknown key 'versoin' in [package] (did you mean 'version'?); "
        "it may have name, version, modules, requires-python, requires-tidemill, capabilities",
        "package.toml:6: unknown key 'requires_python' in [package] (did you mean 'requires-python'?); "
        "it may have name, version, modules, requires-python, requires-tidemill, capabilities",
        "package.toml:8: unknown key 'sharde' in [reactors.market] (did you mean 'shared'?); it may have shared",
        "package.toml:10: unknown key 'retry' in [tasks.\"report.large\"] (did you mean 'retries'?); "
        "it may have retries, timeout, pool, priority, queue, executor, labels, resources, image, pod",
        "package.toml:11: unknown key 'taskz' in the top (did you mean 'tasks'?); it may have package, reactors, tasks",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "package.toml:1: there is no [package]: it needs at least name and version"),
        ("[package]\nname = 'a'", "package.toml:1: [package] has no version"),
        ("package = 3", "package.toml:1: 'package' is a table, not 3"),
        ("[package\n", "package.toml:1: it is not TOML: Expected ']'"),
        ("x = " + "[" * 2000, "package.toml:1: it is nested too deeply"),
        ("x = " + "9" * 4000, "unknown key 'x'"),
        ("x" * 5000, "package.toml:1: a line has more than 4,096 characters"),
        ("#\n" * 40_000, "it has more than 65,536 bytes"),
        (package(version="1.2"), "package.toml:3: version: '1.2' is not a version: three numbers such as '1.2.0'"),
        (package(version="01.2.0"), "is not a version"),
        (package(name="../market"), "package.toml:2: name: a name has small letters, digits and '_'"),
        (package(name="Market"), "a name has small letters"),
        (package(name="m" * 65), "a name has small letters"),
        (package(name="class"), "'class' is a keyword of Python"),
        (package(name="json"), "'json' would hide a module of the standard library; choose another name"),
        (package(name="tidemill"), "'tidemill' would hide Tidemill"),
        (package("modules = []"), "modules: it names no module"),
        (package("modules = 'market'"), "modules: it is a list, not 'market'"),
        (package("modules = [1]"), "a module is named, not 1"),
        (package("modules = ['a', 'a']"), "'a' is in it twice"),
        (package("modules = ['a/b']"), "a name has small letters"),
        (package("modules = ['a..b']"), "'a..b' cannot be imported"),
        (package("modules = ['os.path']"), "would hide a module of the standard library"),
        (package("requires-python = '~=3.11'"), "requires-python: '~=3.11' is not a requirement: write '>=1.2'"),
        (package("requires-tidemill = 1"), "package.toml:4: requires-tidemill: it is a short text, not 1"),
        (package("capabilities = ['secret']"), "a capability is a kind and a name"),
        (package("capabilities = ['secrte:x']"), "there is no capability 'secrte' (did you mean 'secret'?)"),
        (package("[reactors.a]\nshared = 'yes'"), "package.toml:5: shared: it is true or false, not 'yes'"),
        (package("[reactors]\n'a b' = {shared = true}"), "'a b' cannot be the name of a reactor"),
        (package('[reactors.a]\n"sh\\u001b[0m" = true'), "unknown key 'sh\\x1b[0m'"),
        (package("[tasks.large]\nretries = 1"), 'a task is named with its workflow, [tasks."daily_report.large"]'),
        (package("[tasks.'r.l']\nretries = -1"), "package.toml:5: retries: it is not negative, not -1"),
        (package("[tasks.'r.l']\nretries = true"), "retries: it is a whole number, not True"),
        (package("[tasks.'r.l']\ntimeout = 'soon'"), "timeout: 'soon' is not a duration"),
        (package("[tasks.'r.l']\ntimeout = inf"), "is not a duration: it is finite"),
        (package("[tasks.'r.l']\npool = ''"), "pool: it is a name, a text of 1 to 200 characters that can be printed"),
        (package("[tasks]\n'r.l' = 3"), "package.toml:5: 'tasks.\"r.l\"' is a table, not 3"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    """Names with path tricks, values of the wrong kind, TOML that is none."""
    assert any(said in one for one in problems(text)), problems(text)


def test_bytes_that_are_no_text_name_their_line() -> None:
    """The manifest is read from archives of strangers."""
    with pytest.raises(DefinitionError, match=r"package.toml:2: it is not text in UTF-8"):
        read_manifest(b"\n\xff")


@given(st.text(alphabet="[]{}='\".,\n abpackgenversio019-_\\#", max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    """A manifest or a DefinitionError, nothing else."""
    found: tuple[Problem, ...] = ()
    try:
        assert read_manifest(text.encode()).name
    except DefinitionError as error:
        found = error.problems
    assert all(one.location for one in found)


@pytest.mark.parametrize("standard", sorted(one for one in sys.stdlib_module_names if one.islower() and one[0] != "_"))
def test_no_module_of_the_standard_library_can_be_hidden(standard: str) -> None:
    """A package is imported by its own name."""
    assert problems(package(name=standard))


# -- versions


def test_versions_are_ordered() -> None:
    """Numbers by value, and what comes before a release before it."""
    texts = ["0.9.9", "0.10.0", "1.0.0a1", "1.0.0a2", "1.0.0b1", "1.0.0rc1", "1.0.0", "1.0.1", "2.0.0a0", "10.0.0"]
    versions = [Version.parse(text) for text in texts]
    assert all(before < after for before, after in pairwise(versions))
    assert [str(one) for one in versions] == texts


@given(st.tuples(*[st.integers(0, 10**9 - 1)] * 3), st.sampled_from(["", "a1", "b0", "rc12"]))
def test_a_version_has_one_text(numbers: tuple[int, int, int], stage: str) -> None:
    """So the same version cannot be uploaded under two names."""
    text = ".".join(map(str, numbers)) + stage
    assert str(Version.parse(text)) == text


@pytest.mark.parametrize(
    ("requirement", "version", "is_met"),
    [
        (">=3.11", "3.11.0", True),
        (">=3.11", "3.11.0rc1", False),
        (">=3.11, <4", "4.0.0", False),
        (">1", "1.0.1", True),
        ("!=1.2.3", "1.2.3", False),
        ("==1.2", "1.2.0", True),
        ("<=2", "2.0.1", False),
    ],
)
def test_requirements(requirement: str, version: str, is_met: bool) -> None:
    """Every clause must hold; what is left out is zero."""
    assert Requirement.parse(requirement).admits(Version.parse(version)) is is_met


def test_a_package_for_another_tidemill_says_what_it_requires() -> None:
    """Both reasons at once."""
    manifest = read_manifest(package("requires-python = '>=99'\nrequires-tidemill = '>=98'").encode())
    with pytest.raises(RequestError) as raised:
        manifest.check_requirements()
    assert raised.value.code == "unmet_requirement"
    assert str(raised.value) == (
        "package 'market' 1.2.0 cannot run here: "
        f"it requires Python >=99, and this is {running_python()}; "
        f"it requires Tidemill >=98, and this is {running_tidemill()}"
    )
    assert manifest.unmet_requirements(Version(99), Version(98)) == []


def test_everything_that_is_wrong_in_a_list_is_reported() -> None:
    """All problems at once, in lists too; of very many, enough to see what they are."""
    found = problems(
        "[package]\nname = 'p'\nversion = '1.0.0'\n"
        "modules = ['p', 1, 'json', 'p-q', 'class', 'p']\ncapabilities = ['shop', 'secrets:a']\n"
    )
    words = [
        "not 1",
        "'json' would hide",
        "not 'p-q'",
        "'class' is a keyword",
        "'p' is in it twice",
        "not 'shop'",
        "'secrets'",
    ]
    assert len(found) == len(words)
    assert all(word in one for word, one in zip(words, found, strict=True))
    assert len(problems(f"[package]\nname = 'p'\nversion = '1.0.0'\nmodules = {[*range(500)]}\n")) == 20


def test_a_byte_order_mark_is_reported() -> None:
    """Some editors write one, and it is invisible."""
    (said,) = problems(f"\ufeff{WHOLE}")
    assert "it begins with a byte order mark: save it as UTF-8 without one" in said

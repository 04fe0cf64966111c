"""What bermo is made of: each pinned package has its sums, its licence, its place in the list of parts."""

import re

from scripts import make_lock
from scripts.dependencies import EXTRAS, installed, own, parts_of_bermo
from scripts.make_licences import PAGE, lines, page
from scripts.make_lock import LOCK, MARKERS, NOT_LOCKED, entry, pinned
from scripts.make_sbom import locked_sums, purl, sbom
from tests.docs.documents import ROOT

SUM = re.compile(r"[0-9a-f]{64}")
REFUSED = ("GPL", "AGPL", "not stated", "proprietary")
"""Licences, and parts of their names, that no package of a user's may have."""


def test_the_lock_is_what_its_script_writes_for_the_pinned_versions() -> None:
    sums = locked_sums()
    wanted = {name: version for name, version in pinned().items() if name not in NOT_LOCKED}
    assert sums.keys() == wanted.keys(), "run python scripts/make_lock.py"
    text = make_lock.HEAD + "".join(entry(name, wanted[name], sums[name]) for name in sorted(wanted))
    assert text == LOCK.read_text(encoding="utf-8"), "run python scripts/make_lock.py"


def test_every_sum_of_the_lock_is_one_and_no_two_packages_share_it() -> None:
    sums = [item for items in locked_sums().values() for item in items]
    assert all(map(SUM.fullmatch, sums))
    assert len(sums) == len(set(sums))
    assert MARKERS.keys() <= pinned().keys()


def test_what_is_installed_is_what_is_pinned() -> None:
    for name, version in pinned().items():
        package = installed(name)
        assert package is None or package.version == version, "run make setup"


def test_nothing_is_needed_that_is_not_pinned_and_locked() -> None:
    names = {package.name for package in parts_of_bermo()}
    assert names <= pinned().keys()
    assert names - set(NOT_LOCKED) <= locked_sums().keys()
    assert len(names) > 40


def test_files_of_a_version_are_told_from_those_of_another() -> None:
    def is_of(file: str) -> bool:
        return make_lock._is_of(file, "onnx-ir", "1.1.0")

    assert is_of("onnx_ir-1.1.0-py3-none-any.whl")
    assert is_of("onnx_ir-1.1.0.tar.gz")
    assert is_of("onnx-ir-1.1.0.zip")
    assert not is_of("onnx_ir-1.1.0rc1-py3-none-any.whl")
    assert not is_of("onnx_ir-1.1.0.post1.tar.gz")
    assert not is_of("onnx-1.1.0-py3-none-any.whl")


def test_every_pinned_package_has_its_licence_on_the_page() -> None:
    assert lines().keys() == pinned().keys(), "run python scripts/make_licences.py"
    assert page() == PAGE.read_text(encoding="utf-8"), "run python scripts/make_licences.py"


def test_no_package_of_users_has_a_licence_that_binds_what_they_write() -> None:
    for package in parts_of_bermo():
        assert not any(word in package.licence for word in REFUSED), f"{package.name}: {package.licence}"


def test_the_list_of_parts_holds_all_and_says_what_needs_what() -> None:
    made = sbom()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    refs = {part["bom-ref"] for part in made["components"]}
    assert refs == {purl(package) for package in parts_of_bermo()}
    assert {item["ref"] for item in made["dependencies"]} == refs | {purl(own())}
    assert all(set(item["dependsOn"]) <= refs for item in made["dependencies"])
    torch = next(part for part in made["components"] if part["name"] == "torch")
    assert "externalReferences" not in torch
    assert sbom() == made


def test_the_extras_of_the_list_are_those_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", text, flags=re.M) for extra in EXTRAS)


def test_every_locked_package_is_audited_each_week() -> None:
    job = (ROOT / ".github" / "workflows" / "audit.yml").read_text(encoding="utf-8")
    assert re.search(r"schedule:\n\s+- cron: \S+ \S+ \* \* \d", job)
    assert "pip-audit --strict --disable-pip --require-hashes -r requirements.lock" in job
    for name in NOT_LOCKED:
        assert f"grep '^{name}==' constraints.txt" in job

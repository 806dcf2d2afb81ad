"""The two locks: what the quick tests install is what all tests install, hash by hash, without the peers."""

from __future__ import annotations

from pathlib import Path

LOCKS = Path(__file__).parent.parent / "requirements"


def locked(name: str) -> dict[str, list[str]]:
    """Each package of a lock, with its release and marker → its hashes."""
    text = "\n".join(line for line in (LOCKS / name).read_text().splitlines() if not line.startswith("#"))
    blocks = text.replace(" \\\n    --hash=", " --hash=").splitlines()
    return {package: hashes for package, *hashes in (block.split(" --hash=") for block in blocks)}


def test_the_quick_tests_install_the_releases_and_hashes_of_all_tests() -> None:
    unit, all_tests = locked("unit.txt"), locked("test.txt")
    assert unit and all(unit.values())
    assert {package: hashes for package, hashes in unit.items() if all_tests.get(package) != hashes} == {}

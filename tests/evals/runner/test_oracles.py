"""Oracles as files: what they put where, by what they are named, and what they refuse."""

from __future__ import annotations

import pytest

from opsassay.core.errors import NotFoundError, UserError
from opsassay.evals.runner.oracles import FilesOracle, oracle_solver, oracles_asked


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "right"
    (made / "policies").mkdir(parents=True)
    (made / "policies" / "one.yaml").write_text("kind: Policy\n")
    (made / "notes.md").write_text("done\n")
    return made


def test_files_are_placed_with_their_folders_over_what_is_there(folder, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.md").write_text("empty")
    placed = FilesOracle("right", folder).place(workspace)
    assert [path.relative_to(workspace).as_posix() for path in placed] == ["notes.md", "policies/one.yaml"]
    assert (workspace / "policies" / "one.yaml").read_text() == "kind: Policy\n"
    assert (workspace / "notes.md").read_text() == "done\n"


def test_the_digest_is_of_names_and_content(folder):
    oracle = FilesOracle("right", folder)
    first = oracle.digest()
    assert oracle_solver(oracle).name == "oracle:right"
    (folder / "notes.md").write_text("other\n")
    second = oracle.digest()
    (folder / "notes.md").rename(folder / "note.md")
    assert len({first, second, oracle.digest()}) == 3


def test_a_link_and_an_empty_folder_are_refused_and_nothing_is_placed(folder, tmp_path):
    (folder / "secret").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="secret is neither a file nor a folder"):
        FilesOracle("right", folder).place(tmp_path / "workspace")
    with pytest.raises(UserError, match="holds no files"):
        FilesOracle("right", tmp_path / "nothing").digest()
    assert not (tmp_path / "workspace").exists()


def test_oracles_are_asked_for_by_name_or_all_of_them():
    assert oracles_asked("oracle:*", ("right", "wrong"), "t") == ["right", "wrong"]
    assert oracles_asked("oracle:wrong", ("right", "wrong"), "t") == ["wrong"]
    assert oracles_asked("baro", ("right", "wrong"), "t") == []
    with pytest.raises(NotFoundError, match="did you mean 'right'"):
        oracles_asked("oracle:rigt", ("right", "wrong"), "t")

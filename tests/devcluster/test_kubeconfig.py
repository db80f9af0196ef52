from pathlib import Path

from devcluster.kubeconfig import write_kubeconfig


def test_a_reader_sees_all_of_the_old_file_or_all_of_the_new_one(tmp_path: Path):
    path = tmp_path / "kubeconfig"

    def write(user: str) -> str:
        write_kubeconfig(path, server="https://127.0.0.1:1", authority=b"ca", user=user, token="secret")
        return path.read_text()

    before = write("old")
    with path.open() as reader:
        after = write("new")
        assert reader.read() == before != after
    assert path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [path]

"""Options and fixtures of the end-to-end tests."""

import pytest

from quickstart_process import Quickstart


def pytest_addoption(parser):
    parser.addoption("--build", required=True, help="the build folder whose programs are tested")


@pytest.fixture
def quickstart(tmp_path, request):
    one = Quickstart(tmp_path, request.config.getoption("--build"))
    yield one
    one.clean_up()

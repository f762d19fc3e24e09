# SPDX-License-Identifier: MIT OR Apache-2.0
"""Applications of WSGI that know nothing of flash: Bottle and Flask, asked by `requests`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests

FLASH = os.environ.get("FLASH", "")
LIBRARY = Path(__file__).parents[2] / "application" / "python"

BOTTLE = """
import bottle

app = bottle.Bottle()


@app.get("/hello/<name>")
def hello(name):
    bottle.response.set_cookie("seen", "yes")
    return f"hello {name} {bottle.request.query.x} {bottle.request.get_cookie('seen')}"


@app.post("/form")
def form():
    upload = bottle.request.files["upload"]
    return {"size": len(upload.file.read()), "field": bottle.request.forms["field"]}


@app.get("/parts")
def parts():
    for number in range(3):
        yield f"part {number} "


@app.get("/move")
def move():
    bottle.redirect("/shop/hello/moved")
"""

FLASK = """
import flask

app = flask.Flask(__name__)
app.secret_key = "of a test"


@app.get("/hello/<name>")
def hello(name):
    seen, flask.session["seen"] = flask.session.get("seen"), "yes"
    return f"hello {name} {flask.request.args['x']} {seen}"


@app.post("/form")
def form():
    upload = flask.request.files["upload"]
    return {"size": len(upload.read()), "field": flask.request.form["field"]}


@app.get("/parts")
def parts():
    return flask.Response(f"part {number} " for number in range(3))


@app.get("/move")
def move():
    return flask.redirect("/shop/hello/moved?x=1")
"""


@pytest.fixture(scope="module", params=["bottle", "flask"])
def address(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    (place / "root").mkdir()
    (place / "shop.py").write_text({"bottle": BOTTLE, "flask": FLASK}[request.param], encoding="utf-8")
    (place / "flash.toml").write_text(
        f"""
[[server]]
listen = ["127.0.0.1:0"]
root = "root"

[[server.location]]
path = "/shop"
application = {{ command = ["{sys.executable}", "-m", "flash_application.wsgi", "shop:app"], processes = 2, \
environment = {{ PYTHONPATH = "{LIBRARY}", PYTHONDONTWRITEBYTECODE = "1" }} }}
""",
        encoding="utf-8",
    )
    if not FLASH:
        pytest.fail("the environment variable FLASH names the program that is tested")
    with subprocess.Popen([FLASH, "run", place / "flash.toml"], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[-1].rstrip("/")
        finally:
            server.terminate()


def session():
    made = requests.Session()
    made.trust_env = False
    return made


def test_a_page_and_a_cookie(address):
    with session() as client:
        first = client.get(f"{address}/shop/hello/a%20b?x=%31")
        assert first.text == "hello a b 1 None"
        assert "Content-Length" in first.headers and first.headers["Server"] == "flash"
        assert client.get(f"{address}/shop/hello/c?x=2").text == "hello c 2 yes"
        assert client.head(f"{address}/shop/hello/c?x=2").status_code == 200
        assert client.get(f"{address}/shop/none").status_code == 404
        assert client.get(f"{address}/shop/move").url.startswith(f"{address}/shop/hello/moved")


def test_a_form_with_a_file(address):
    with session() as client:
        for size in (0, 10, 300_000):
            answer = client.post(
                f"{address}/shop/form", data={"field": "ü"}, files={"upload": ("a", b"x" * size)}
            )
            assert answer.json()["size"] == size
            assert answer.json()["field"] in ("ü", "Ã¼")


def test_an_answer_in_parts(address):
    with session() as client:
        answer = client.get(f"{address}/shop/parts")
        assert answer.text == "part 0 part 1 part 2 "
        assert answer.headers["Transfer-Encoding"] == "chunked"

"""Asks a server with the clients that others use: OpenAI's for a language model, Triton's for any other.

    pip install openai 'tritonclient[http]' numpy
    runner serve digits=runs/digits_cnn/1 gpt=runs/gpt/1
    python scripts/serve_clients.py http://127.0.0.1:8000
"""

import json
import sys
import urllib.request

import numpy
import openai
import tritonclient.http
import tritonclient.utils


def language(address, model):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    assert model in [m.id for m in client.models.list()] and client.models.retrieve(model).id == model
    how = dict(model=model, prompt="a", max_tokens=30, temperature=0.9, seed=5)
    whole = client.completions.create(**how, extra_body={"top_k": 5})
    choice, usage = whole.choices[0], whole.usage
    assert choice.finish_reason in ("stop", "length") and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    pieces = list(client.completions.create(**how, extra_body={"top_k": 5}, stream=True, stream_options={"include_usage": True}))
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == choice.text, pieces
    assert pieces[-1].usage == usage, pieces[-1]
    assert len(client.completions.create(**{**how, "prompt": ["a", "b"]}).choices) == 2
    several = client.completions.create(**how, n=3, extra_body={"top_k": 5}).choices
    assert [one.index for one in several] == [0, 1, 2] and several[0].text == choice.text, several
    # One that wants no more after some pieces.
    with client.completions.create(**{**how, "max_tokens": 4000}, stream=True) as stream:
        for _ in zip(range(3), stream):
            pass
    for error, wrong in [
        (openai.BadRequestError, dict(n=0)),
        (openai.BadRequestError, dict(temperature=-1)),
        (openai.NotFoundError, dict(model="nothing")),
    ]:
        try:
            client.completions.create(**{**how, **wrong})
            raise AssertionError(f"{wrong} was taken")
        except error as refused:
            assert refused.param in wrong and refused.type == "invalid_request_error", refused
    messages = [{"role": "user", "content": "hello"}]
    try:
        answer = client.chat.completions.create(model=model, messages=messages, max_tokens=20, seed=1)
        pieces = client.chat.completions.create(model=model, messages=messages, max_tokens=20, seed=1, stream=True)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert answer.choices[0].message.content == text, (answer, text)
    except openai.BadRequestError as refused:
        assert refused.code == "no_chat_template", refused


def tensors(address, model):
    client = tritonclient.http.InferenceServerClient(address.split("://")[1])
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    inputs = []
    for given in client.get_model_metadata(model)["inputs"]:
        shape = [2] + given["shape"][1:]
        inputs.append(tritonclient.http.InferInput(given["name"], shape, given["datatype"]))
        # A length of 0 is none.
        inputs[-1].set_data_from_numpy(numpy.ones(shape, tritonclient.utils.triton_to_np_dtype(given["datatype"])))
    binary = client.infer(model, inputs).as_numpy("outputs")
    plain = client.infer(model, inputs, outputs=[tritonclient.http.InferRequestedOutput("outputs", binary_data=False)])
    assert binary.shape[0] == 2 and numpy.isfinite(binary).all() and numpy.allclose(binary, plain.as_numpy("outputs"))


def main(address):
    with urllib.request.urlopen(f"{address}/models") as answer:
        models = json.load(answer)["models"]
    for model in models:
        (language if model["takes"] == "text" else tensors)(address, model["name"])
        print(model["name"], "is well")


main(sys.argv[1].rstrip("/"))

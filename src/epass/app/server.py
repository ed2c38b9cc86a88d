"""A model behind HTTP: an image comes in, what the model says about it goes out as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..untrusted import parse_json
from .answers import Judge, as_object
from .web import Refusal, read_body

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from ..engine.answer import Answerer

    Handler = Callable[[Request], Awaitable[Response]]

LARGEST_BODY = 2**25  # bytes of an image that is sent
SECONDS = 30.0  # for a request: to send its image, to wait for others, and to be answered
AT_ONCE, WAITING = 2, 32  # images that are answered at a time, and requests that may wait for that
USAGE = """This is a model that epass serves.

POST /predict   an image as the body: curl --data-binary @photo.jpg URL/predict
GET  /health    whether it is there, and which classes it knows

It answers in JSON: prediction, confidence and the next classes; if the model
has these, also set (classes it may be), abstain (too uncertain to be answered),
novelty and unlike (none of the kind that the model was tested on).
"""


class Desk:
    """Where questions are answered, a few at a time."""

    def __init__(self, answerer: Answerer, judge: Judge) -> None:
        self.answerer, self.judge = answerer, judge
        self.answered = self.present = 0
        self.free = asyncio.Semaphore(AT_ONCE)

    async def predict(self, request: Request) -> dict[str, Any]:
        """What the model says about the image in a request."""
        from starlette.concurrency import run_in_threadpool

        if self.present >= WAITING:
            raise Refusal(503, "Too many images are waiting: try again in a moment.")
        self.present += 1
        try:
            async with asyncio.timeout(SECONDS):
                body = await read_image(request)
                async with self.free:
                    said = await run_in_threadpool(self.answer, body)
        except TimeoutError:
            raise Refusal(408, f"This took more than {SECONDS:g} seconds: send it again, or a smaller image.") from None
        finally:
            self.present -= 1
        self.answered += 1
        return said

    def answer(self, body: bytes) -> dict[str, Any]:
        """What the model says about an image file, or about a vector in JSON."""
        model = self.answerer.model
        given = vector_in(body, model["numbers"]) if "numbers" in model else image_in(body, model)
        logits, features = self.answerer.answer(given)
        (answer,), _ = self.judge.answers([""], logits, self.judge.novelty(features))
        return {name: value for name, value in as_object(answer).items() if name != "file"}

    async def health(self, _: Request) -> dict[str, Any]:
        """That the model is there."""
        return {"status": "ok", "classes": list(self.judge.classes), "answered": self.answered}


async def read_image(request: Request) -> bytes:
    """The image that is sent, if it is not too large."""
    kind = request.headers.get("content-type", "")
    if kind.startswith("multipart/"):
        raise Refusal(415, "Send the image itself as the body, not a form: curl --data-binary @photo.jpg ...")
    body = await read_body(request, LARGEST_BODY, "The image")
    if not body:
        raise Refusal(400, "There is no image in the request: send one as its body.")
    return body


def image_in(body: bytes, model: dict[str, Any]) -> NDArray[Any]:
    """The image in a file, as the model takes it: uint8 (1, C, H, W)."""
    from ..data.read.decode import ADVICE, Packed, decode_readable, to_gray

    readable, reasons = decode_readable([(0, Packed("that was sent", body))], model["height"])
    if reasons:
        raise InputError(f"The image {reasons[0].removesuffix(ADVICE)}.")
    pixels = readable[0][None].copy()
    return pixels if model["channels"] == 3 else to_gray(pixels)


def vector_in(body: bytes, numbers: int) -> NDArray[Any]:
    """The vector in a list of JSON: float32 (1, D)."""
    import numpy as np

    try:
        with np.errstate(over="ignore"):
            vector = np.array(parse_json(body), dtype=np.float64).astype(np.float32)
        if vector.shape != (numbers,) or not np.isfinite(vector).all():
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"The model takes a vector: send a JSON list of {numbers:,} numbers.") from None
    return vector[None]


def make_server(desk: Desk, hosts: set[str] | None) -> Starlette:
    """The application; requests that were sent to a name that is not among `hosts` are refused.

    A page in a browser can let its own name lead to this machine, and would then read the answers.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def answering(handler: Callable[[Request], Awaitable[dict[str, Any]]]) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                if hosts is not None and request.url.hostname not in hosts:
                    raise Refusal(403, "Only requests to this machine by its own name are answered.")
                return JSONResponse(await handler(request))
            except Refusal as refusal:
                return JSONResponse({"error": str(refusal)}, refusal.status)
            except InputError as problem:
                return JSONResponse({"error": str(problem)}, 400)
            except ClientDisconnect:  # nobody is there to be answered
                return Response(status_code=400)
            except Exception:  # nobody who asks is to see a traceback
                logging.getLogger(__name__).exception("%s %s", request.method, request.url.path)
                return JSONResponse({"error": "The model failed on this image."}, 500)

        return answer

    async def usage(request: Request) -> Response:
        return PlainTextResponse(USAGE.replace("URL", str(request.base_url).rstrip("/")))

    async def complain(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        return JSONResponse({"error": f"{problem.detail}: see GET /."}, problem.status_code)

    routes = [
        Route("/predict", answering(desk.predict), methods=["POST"]),
        Route("/health", answering(desk.health)),
        Route("/", usage),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: complain})

"""A server in the test's own event loop that answers as it is told."""

import asyncio
import contextlib

from aiohttp import web


@contextlib.asynccontextmanager
async def serving(handle):
    """Serve every request with `handle`. Gives the URL."""

    async def answer(request):
        return await handle(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)

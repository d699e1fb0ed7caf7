"""Requests with httpx over HTTP/2: concurrent GETs, a POST, an early response. Prints the results."""
import asyncio
import sys

import httpx


async def main(base):
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(http1=False, http2=True, verify=False, limits=limits, timeout=60) as client:
        paths = [f"{base}/?s={n * 1000}&t={n % 7}" for n in range(100)]
        responses = await asyncio.gather(*(client.get(path) for path in paths))
        sizes = [len(response.content) for response in responses]
        assert sizes == [n * 1000 for n in range(100)], sizes
        assert {response.http_version for response in responses} == {"HTTP/2"}
        posted = await client.post(f"{base}/?s=5", content=b"x" * 1_000_000)
        early = await client.post(f"{base}/?s=5&B=0", content=b"x" * 10_000)
        missing = await client.get(f"{base}/?r=404&s=3")
        head = await client.head(f"{base}/?s=77")
        print(len(posted.content), early.status_code, missing.status_code, head.headers["content-length"])


asyncio.run(main(sys.argv[1]))

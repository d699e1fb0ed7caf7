// Requests with Node's http2 module on one session: GETs, a POST, a stream that the client resets.
const http2 = require('node:http2');
const session = http2.connect(process.argv.at(-1), { rejectUnauthorized: false });
session.on('error', (error) => { throw error; });

function request(path, method = 'GET', body = undefined) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ':path': path, ':method': method }, { endStream: body === undefined });
    let status = 0;
    let bytes = 0;
    stream.on('response', (headers) => { status = headers[':status']; });
    stream.on('data', (chunk) => { bytes += chunk.length; });
    stream.on('end', () => resolve([status, bytes]));
    stream.on('error', reject);
    if (body !== undefined) stream.end(body);
  });
}

function cancel(path) {
  return new Promise((resolve) => {
    const stream = session.request({ ':path': path });
    stream.on('error', () => {});
    stream.on('close', () => resolve(stream.rstCode));
    setImmediate(() => stream.close(http2.constants.NGHTTP2_CANCEL));
  });
}

async function main() {
  const paths = Array.from({ length: 200 }, (_, n) => `/?s=${n * 500}&t=${n % 5}`);
  const results = await Promise.all(paths.map((path) => request(path)));
  results.forEach(([status, bytes], n) => {
    if (status !== 200 || bytes !== n * 500) throw new Error(`${n}: ${status} ${bytes}`);
  });
  const [, posted] = await request('/?s=5', 'POST', Buffer.alloc(1000000));
  const code = await cancel('/?t=60s');
  const [status] = await request('/?r=503');
  console.log(posted, code, status);
  session.close();
}
main();

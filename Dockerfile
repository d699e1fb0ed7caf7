# An image with the binary, its libraries and root certificates: no shell, no package manager. It runs as
# user 65532, needs no capability, and writes nothing to its root.
#
#   docker build --tag weir .
#   docker run --rm --network host --read-only weir load http://127.0.0.1:8000/
#   docker run --rm --read-only --publish 8080:8080 --volume ./weir.toml:/etc/weir/weir.toml:ro weir \
#     proxy --config /etc/weir/weir.toml
FROM rust:1.95-bookworm AS build
WORKDIR /weir
COPY . .
RUN cargo build --release --locked --package cli && packaging/image-root target/release/weir /image

FROM scratch
COPY --from=build /image /
ENV PATH=/usr/bin
WORKDIR /var/lib/weir
USER 65532:65532
ENTRYPOINT ["/usr/bin/weir"]

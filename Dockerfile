# An image with the binary alone.
#
#   docker build --tag weir .
#   docker run --rm --network host weir load http://127.0.0.1:8000/
#   docker run --rm --publish 8080:8080 --volume ./weir.toml:/etc/weir/weir.toml:ro weir proxy --config /etc/weir/weir.toml
FROM rust:1.95-bookworm AS build
WORKDIR /weir
COPY . .
RUN cargo build --release --locked --package cli

FROM debian:bookworm-slim
COPY --from=build /weir/target/release/weir /usr/bin/weir
# Any user can run weir: it needs no privilege for ports above 1023.
USER nobody
ENTRYPOINT ["/usr/bin/weir"]

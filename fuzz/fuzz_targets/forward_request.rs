//! See `proxy::fuzzing::forward_request`.
#![no_main]

weir_fuzz::target!("forward_request", proxy::fuzzing::forward_request, proxy::fuzzing::only_forward_request);

//! See `import::fuzzing::import`.
#![no_main]

weir_fuzz::target!("proxy_import", import::fuzzing::import);

//! Body of the fuzz targets: the properties of a decoder, and its cost.

pub use decode_cost;
pub use libfuzzer_sys;

/// Defines a fuzz target: its name, the function that checks the properties, and the decoder whose cost is
/// measured, if that is another function.
#[macro_export]
macro_rules! target {
    ($name:literal, $check:path) => {
        $crate::target!($name, $check, $check);
    };
    ($name:literal, $check:path, $decode:path) => {
        #[global_allocator]
        static ALLOCATOR: $crate::decode_cost::CountingAllocator = $crate::decode_cost::CountingAllocator;

        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            $check(bytes);
            $crate::decode_cost::check($name, bytes, |bytes| {
                let _ = $decode(bytes);
            });
        });
    };
}

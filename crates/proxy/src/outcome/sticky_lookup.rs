//! Results of the lookup of a request's sticky cookie.

macro_rules! sticky_lookups {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// Result of the lookup of a request's sticky cookie.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum StickyLookup {
            $(#[doc = $doc] $variant,)*
        }

        impl StickyLookup {
            /// Every variant, in the order of the table: `lookup as usize` is its index.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code, in `snake_case`, stable.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

sticky_lookups! {
    Hit, "hit", "Names a server that is up; the request goes there.";
    Missing, "missing", "No cookie.";
    Unknown, "unknown", "Valid, but its server is no longer in the pool.";
    Invalid, "invalid", "Forged, corrupt, or signed with another key.";
    Down, "down", "Names a server that is not up.";
}

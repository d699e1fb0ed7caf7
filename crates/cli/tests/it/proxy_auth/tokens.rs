//! Tokens that were made once with openssl, and the keys that verify them. All but one expire in the year 2100.

/// Claims: `sub` ann, `iss` https://id.example, `aud` api, `realm_access.roles` user and admin, `tenant` t1.
pub(super) const GOOD: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.qPnev8QqQyPX99zwJ2z1ltCwZIs0amokjPA2QnWGhyU-zN5vrOMhB2iD4FvVIj2buOC3JDH3YPcF3AyNQ79bxw";
/// The same of bob, without the role admin, `tenant` t2.
pub(super) const OF_USER: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJib2IiLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIl19LCJ0ZW5hbnQiOiJ0MiIsIm4iOjcsIm9rIjp0cnVlfQ.dDSZ7_hNj_5CV9U-QEqAeaFOfJfvsdmBypVGgc802oecKQqRnu6DVpIxEgY7IuDJzU1as_s7pPWNgn0AqLnI7g";
pub(super) const EXPIRED: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjE1MDAwMDAwMDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.hHfrQ-Lc-cKxNBZF18b745HlW85SaBVfBKd6wRsFpqdhmR5vOiTbQa2Dh-45Wp-2u6GJEZ0l5lsgDlvZ6x7HAg";
pub(super) const NOT_YET_VALID: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWUsIm5iZiI6NDEwMjQ0NDc5OX0.DZ7Zo69WHrNAfosKOAONvCO24kNzsV8LDEnQFuBVOelXKe8PFZtaeQxx_kEhtfHyd-7EL2tygnYF4A8rOyRVbA";
pub(super) const WITHOUT_END: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJhcGkiLCJyZWFsbV9hY2Nlc3MiOnsicm9sZXMiOlsidXNlciIsImFkbWluIl19LCJ0ZW5hbnQiOiJ0MSIsIm4iOjcsIm9rIjp0cnVlfQ.oax2IKH0yhLpVsNsTXKoaNU3Sb6VUsa4d4qpI9cJ1n6UoEhKp79tY3Y0xJJpPBS_Pr3c8VBYiSXkA_GJMbWq9g";
pub(super) const OTHER_AUDIENCE: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6WyJ3ZWIiXSwicmVhbG1fYWNjZXNzIjp7InJvbGVzIjpbInVzZXIiLCJhZG1pbiJdfSwidGVuYW50IjoidDEiLCJuIjo3LCJvayI6dHJ1ZX0.k3OQr3VPR6AexLzPvbfqWATObIc89181wdgXMnHnXVbfoFcTq1pcDbdTGvjyT3KPo5qIBN6T2XJIQNlvh1a6DQ";
pub(super) const OTHER_ISSUER: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vZXZpbC5leGFtcGxlIiwiYXVkIjoiYXBpIiwicmVhbG1fYWNjZXNzIjp7InJvbGVzIjpbInVzZXIiLCJhZG1pbiJdfSwidGVuYW50IjoidDEiLCJuIjo3LCJvayI6dHJ1ZX0.R5iOSKFzd7HaJSrC3AO0bQc_mznLbv2y_KAZChnEkHQ8FLa-k7aHwQMqVk1GfVu7kF19Z9xJLas9Zl2UbPGXXw";
/// The same, signed by the second key.
pub(super) const OF_NEW_KEY: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUyIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.ZR-xOqXhHK75yElgH53sMCoq7WSjtJdWFo3nM7GlN-LMvy0v4_GNnX3jqF3foh468uli31o3R9o-gYsbAe5qaQ";
pub(super) const INJECTED_KEY_NAME: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6Ii4uLy4uLy4uL2Rldi9udWxsIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.8MCRORL-5M57iXwe3gbFuxB1dPU391E_44PhLfydGxMQHPTTURCei0TMEktTU0hBSQfAygDRrqSs6CKcqpYSoQ";
/// The same, with the public key in PEM as a secret (HS256).
pub(super) const CONFUSED: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImUxIn0.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.3jNkKRjnP5euCjAIobBRVTOihPYCk8N8lVF7f9PK384";
pub(super) const UNSIGNED: &str = "eyJhbGciOiJub25lIiwia2lkIjoiZTEifQ.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.";
/// The same, signed with [`SECRET`].
pub(super) const OF_SECRET: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsImlzcyI6Imh0dHBzOi8vaWQuZXhhbXBsZSIsImF1ZCI6ImFwaSIsInJlYWxtX2FjY2VzcyI6eyJyb2xlcyI6WyJ1c2VyIiwiYWRtaW4iXX0sInRlbmFudCI6InQxIiwibiI6Nywib2siOnRydWV9.UTYN-WUqpXeuzzvst6vp2uagWclPzkltU_bqZ1CxOoc";

/// The first key as a set.
pub(super) const JWKS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"e1","use":"sig","x":"qQD9bNUE0nz2re6ewCczyd3aE7z0fvES4ZQ3_bYtu7M","y":"khgCVklU8BHusDGath8sr-mJgcw60fN8hhlmE7Ro_hA"}]}"#;
/// Both keys.
pub(super) const NEW_JWKS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"e1","use":"sig","x":"qQD9bNUE0nz2re6ewCczyd3aE7z0fvES4ZQ3_bYtu7M","y":"khgCVklU8BHusDGath8sr-mJgcw60fN8hhlmE7Ro_hA"},{"kty":"EC","crv":"P-256","kid":"e2","use":"sig","x":"3nHN084IaI7I7x2EaPo2YxhZujhVbSusPGkQcxceI_8","y":"ZKhSDzwajO8xWJyvhxvDNqzbO2ju21erUkz0aYPHdPc"}]}"#;
/// The first key in PEM.
pub(super) const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqQD9bNUE0nz2re6ewCczyd3aE7z0\nfvES4ZQ3/bYtu7OSGAJWSVTwEe6wMZq2Hyyv6YmBzDrR83yGGWYTtGj+EA==\n-----END PUBLIC KEY-----\n";
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef";

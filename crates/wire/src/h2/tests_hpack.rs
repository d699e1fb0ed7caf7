//! Tests of HPACK: the examples of RFC 7541 Appendix C, faults, and both directions together.

use super::FaultKind;
use super::decoder::Decoder;
use super::encoder::{Encoder, FieldEncoder, WrittenHead};
use super::head::{Head, HeadLimits, HeadProblem, Section};
use crate::RefusalKind;

const LIMITS: HeadLimits =
    HeadLimits { bytes_max: 1 << 20, fields_max: 1_000, target_bytes_max: 8_192, allows_protocol: false };

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

struct Reader {
    decoder: Decoder,
    head: Head,
}

impl Reader {
    fn new() -> Self {
        Self { decoder: Decoder::new(4_096), head: Head::new(LIMITS) }
    }

    fn decode(&mut self, section: Section, block: &[u8]) -> Result<(), FaultKind> {
        self.head.begin(section);
        self.decoder.decode(block, &mut self.head)
    }

    fn fields(&self) -> Vec<(String, Vec<u8>)> {
        self.head
            .fields(self.decoder.texts())
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect()
    }

    /// Decodes a request and returns its parts in one line.
    fn request(&mut self, hex: &str) -> String {
        self.decode(Section::Request, &bytes(hex)).expect("a valid block");
        self.head.finish_request(self.decoder.texts()).expect("a valid head");
        let head = self.head.request(self.decoder.texts());
        let mut line = format!(
            "{} {} {} {}",
            head.method,
            head.scheme.unwrap_or_default(),
            head.path.unwrap_or_default(),
            head.authority.unwrap_or_default()
        );
        for (name, value) in head.fields.iter() {
            line += &format!(" {name}={}", value.escape_ascii());
        }
        line
    }

    fn response(&mut self, hex: &str) -> String {
        self.decode(Section::Response, &bytes(hex)).expect("a valid block");
        let mut line = self.head.finish_response().expect("a valid head").to_string();
        for (name, value) in self.head.response(self.decoder.texts()).fields.iter() {
            line += &format!(" {name}={}", value.escape_ascii());
        }
        line
    }

    fn fault(block: &[u8]) -> Option<FaultKind> {
        Self::new().decode(Section::Trailers, block).err()
    }
}

#[test]
fn literals_of_appendix_c2() {
    let mut reader = Reader::new();
    let decode = |reader: &mut Reader, hex: &str| {
        reader.decode(Section::Trailers, &bytes(hex)).expect("a valid block");
        reader.fields()
    };
    let fields = decode(&mut reader, "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
    assert_eq!(fields, [("custom-key".to_owned(), b"custom-header".to_vec())]);
    assert_eq!(reader.decoder.table_size(), 55);
    let fields = decode(&mut reader, "1008 7061 7373 776f 7264 0673 6563 7265 74");
    assert_eq!(fields, [("password".to_owned(), b"secret".to_vec())]);
    assert_eq!(reader.decoder.table_size(), 55);
    let fields = decode(&mut reader, "be");
    assert_eq!(fields, [("custom-key".to_owned(), b"custom-header".to_vec())]);
}

#[test]
fn requests_of_appendix_c3_and_c4() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        let mut reader = Reader::new();
        assert_eq!(reader.request(blocks[0]), "GET http / www.example.com");
        assert_eq!(reader.decoder.table_size(), 57);
        assert_eq!(reader.request(blocks[1]), "GET http / www.example.com cache-control=no-cache");
        assert_eq!(reader.decoder.table_size(), 110);
        assert_eq!(
            reader.request(blocks[2]),
            "GET https /index.html www.example.com custom-key=custom-value"
        );
        assert_eq!(reader.decoder.table_size(), 164);
    }
}

#[test]
fn responses_of_appendix_c5_and_c6() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
         3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [plain, huffman] {
        let mut reader = Reader::new();
        reader.decoder.set_table_size(256);
        assert_eq!(
            reader.response(blocks[0]),
            "302 cache-control=private date=Mon, 21 Oct 2013 20:13:21 GMT location=https://www.example.com"
        );
        assert_eq!(reader.decoder.table_size(), 222);
        assert_eq!(
            reader.response(blocks[1]),
            "307 cache-control=private date=Mon, 21 Oct 2013 20:13:21 GMT location=https://www.example.com"
        );
        assert_eq!(reader.decoder.table_size(), 222);
        assert_eq!(
            reader.response(blocks[2]),
            "200 cache-control=private date=Mon, 21 Oct 2013 20:13:22 GMT location=https://www.example.com \
             content-encoding=gzip set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
        );
        assert_eq!(reader.decoder.table_size(), 215);
    }
}

#[test]
fn invalid_blocks_are_refused() {
    use FaultKind::{BlockTruncated, HuffmanInvalid, IntegerOverflow, TableIndexInvalid, TableSizeInvalid};
    let cases: &[(&str, FaultKind)] = &[
        ("80", TableIndexInvalid),
        ("be", TableIndexInvalid),
        ("7f00 0161", TableIndexInvalid),
        ("ff80 8080 8001", IntegerOverflow),
        ("ffff ffff ffff", IntegerOverflow),
        ("ff80", BlockTruncated),
        ("00", BlockTruncated),
        ("0001", BlockTruncated),
        ("0001 61", BlockTruncated),
        ("0001 6105 61", BlockTruncated),
        ("0001 61ff ffff ff7f", BlockTruncated),
        ("3fe2 1f", TableSizeInvalid),
        ("0001 6101 6220", TableSizeInvalid),
        ("0001 6181 00", HuffmanInvalid),
        ("0001 6182 1fff", HuffmanInvalid),
        ("0001 6184 ffff ffff", HuffmanInvalid),
    ];
    for &(hex, fault) in cases {
        assert_eq!(Reader::fault(&bytes(hex)), Some(fault), "{hex}");
    }
    assert_eq!(Reader::fault(&bytes("3fe1 1f 20 0001 6101 62")), None, "two updates at the start");
}

#[test]
fn a_reduced_table_must_be_confirmed() {
    let mut decoder = Decoder::new(100);
    let mut head = Head::new(LIMITS);
    head.begin(Section::Trailers);
    assert_eq!(decoder.decode(&bytes("4001 6101 62"), &mut head), Ok(()), "before the acknowledgement");
    decoder.apply_size_limit(100);
    assert_eq!(decoder.decode(&bytes("be"), &mut head), Err(FaultKind::TableSizeInvalid));
    assert_eq!(decoder.decode(&bytes("3f45 be"), &mut head), Ok(()), "100 bytes");
    assert_eq!(decoder.decode(&bytes("3f46"), &mut head), Err(FaultKind::TableSizeInvalid), "101 bytes");
}

#[test]
fn heads_over_a_limit_keep_the_table_in_step() {
    let limits = HeadLimits { bytes_max: 200, fields_max: 2, ..LIMITS };
    let mut reader = Reader { decoder: Decoder::new(4_096), head: Head::new(limits) };
    // Three fields that are inserted; the third is one too many.
    reader.decode(Section::Trailers, &bytes("4001 6101 31 4001 6201 32 4001 6301 33")).expect("valid");
    assert_eq!(reader.head.finish_trailers(), Err(HeadProblem::Refused(RefusalKind::TooManyFields)));
    reader.decode(Section::Trailers, &bytes("be c0")).expect("valid");
    assert_eq!(reader.head.finish_trailers(), Ok(()));
    assert_eq!(reader.fields(), [("c".to_owned(), b"3".to_vec()), ("a".to_owned(), b"1".to_vec())]);
    // A field over the limit is decoded for the table, up to twice the limit.
    let mut block = bytes("4001 61 7f49");
    block.extend_from_slice(&[b'x'; 200]);
    reader.decode(Section::Trailers, &block).expect("valid");
    assert_eq!(reader.head.finish_trailers(), Err(HeadProblem::Refused(RefusalKind::HeadTooLarge)));
    assert_eq!(reader.decode(Section::Trailers, &[0xbe]), Ok(()));
    assert_eq!(reader.decode(Section::Trailers, &[0xbe; 2]), Err(FaultKind::BlockTooLarge));
}

/// Deterministic random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    }
}

#[test]
fn encoder_and_decoder_agree() {
    const NAMES: &[&str] =
        &["server", "date", "x-request-id", "content-type", "x-a", "vary", "authorization"];
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut encoder = Encoder::new();
        let mut reader = Reader::new();
        for _ in 0..300 {
            if random.next(20) == 0 {
                encoder.set_size_limit(random.next(5_000) as usize);
                encoder.set_size_limit(random.next(5_000) as usize);
            }
            let mut fields = Vec::new();
            for _ in 0..random.next(12) {
                let name = NAMES[random.next(NAMES.len() as u64) as usize].to_owned();
                let mut value = vec![b'v'; random.next(8) as usize * random.next(40) as usize];
                for _ in 0..random.next(3) {
                    value.push(b'!' + random.next(90) as u8);
                }
                fields.push((name, value));
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            let mut writer =
                FieldEncoder { encoder: &mut encoder, out: &mut block, head: WrittenHead::default() };
            for (name, value) in &fields {
                if random.next(10) == 0 {
                    writer.field_without_index(name, value);
                } else {
                    writer.field(name, value);
                }
            }
            reader.decode(Section::Trailers, &block).expect("a valid block");
            assert_eq!(reader.fields(), fields);
        }
    }
}

#[test]
fn repeated_fields_become_one_byte() {
    let mut encoder = Encoder::new();
    let mut lens = Vec::new();
    for _ in 0..4 {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        let mut writer =
            FieldEncoder { encoder: &mut encoder, out: &mut block, head: WrittenHead::default() };
        writer.status(200);
        writer.field("server", b"weir");
        writer.field("content-type", b"text/plain");
        writer.field("x-cache", b"none");
        lens.push(block.len());
    }
    assert_eq!(lens[2..], [4, 4], "{lens:?}");
}

#[test]
fn secrets_are_never_indexed() {
    let mut encoder = Encoder::new();
    for _ in 0..3 {
        let mut block = Vec::new();
        let mut writer =
            FieldEncoder { encoder: &mut encoder, out: &mut block, head: WrittenHead::default() };
        writer.field("Cookie", b"a=1");
        assert_eq!(block[..2], [0x1f, 32 - 15], "literal never indexed, name 32");
        block.clear();
        let mut writer =
            FieldEncoder { encoder: &mut encoder, out: &mut block, head: WrittenHead::default() };
        for name in ["Connection", "TE", "Keep-Alive", "Upgrade", "Transfer-Encoding", "Proxy-Connection"] {
            writer.field(name, b"x");
        }
        assert_eq!(block, b"");
    }
}

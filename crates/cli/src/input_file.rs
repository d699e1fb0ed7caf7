//! Input files that a user names: regular files, pipes, and `-` for stdin. Each read has a limit. The caller says
//! whether a compressed file (gzip, zstd) is read decompressed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;

/// First bytes of a file of gzip.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// First bytes of a file of zstd.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Returns the content of a file; `-` is stdin.
///
/// # Errors
/// It cannot be read, is neither a regular file nor a pipe, or has more than `bytes_max` bytes.
pub(crate) fn read_bytes(path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    if path == "-" {
        return read_bounded(io::stdin().lock(), bytes_max);
    }
    let file_type = std::fs::metadata(path)?.file_type();
    if !file_type.is_file() && !file_type.is_fifo() {
        return Err(io::Error::other("neither a regular file nor a pipe"));
    }
    read_bounded(File::open(path)?, bytes_max)
}

/// Returns the text of a file, decompressed and without a byte order mark. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// Those of [`read_bytes`], or the compressed content is damaged.
pub(crate) fn read_text(path: &str, bytes_max: u64) -> io::Result<String> {
    let bytes = read_bytes(path, bytes_max)?;
    let content = if bytes.starts_with(GZIP_MAGIC) {
        // A rotated log may consist of several members.
        read_bounded(flate2::read::MultiGzDecoder::new(&*bytes), bytes_max)?
    } else if bytes.starts_with(ZSTD_MAGIC) {
        read_bounded(zstd::stream::read::Decoder::with_buffer(&*bytes)?, bytes_max)?
    } else {
        bytes
    };
    let text = String::from_utf8(content)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(without_byte_order_mark(text))
}

/// Removes the byte order mark that programs of Windows write before UTF-8.
pub(crate) fn without_byte_order_mark(text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

fn read_bounded(reader: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let text = format!("more than the limit of {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn compressed_texts_are_read_within_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log").to_str().unwrap().to_owned();
        let gzip = |text: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        std::fs::write(&path, [gzip("\u{feff}a\n".as_bytes()), gzip(b"b\xff\n")].concat()).unwrap();
        assert_eq!(read_text(&path, 100).unwrap(), "a\nb\u{fffd}\n");
        std::fs::write(&path, zstd::stream::encode_all(&[b'x'; 1000][..], 1).unwrap()).unwrap();
        assert_eq!(read_text(&path, 1000).unwrap().len(), 1000);
        assert_eq!(read_text(&path, 999).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read_bytes("/dev/zero", 10).is_err());
    }
}

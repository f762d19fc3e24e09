//! What a server sends to `latlab-dynamic`.
#![no_main]

use std::io::{self, Read, Write};

use libfuzzer_sys::fuzz_target;

struct Ends<'a>(&'a [u8]);

impl Read for Ends<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Ends<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let mut ends = Ends(data);
    while let Ok(Some(request)) = latlab::fastcgi::read_request(&mut ends) {
        let uri = request.param("REQUEST_URI").unwrap_or("");
        let _ = latlab::fileset::File::from_path(uri);
    }
});

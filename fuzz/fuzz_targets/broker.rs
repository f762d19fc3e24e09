//! What a client says to the broker, and what a program takes for the broker's answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&how, packet)) = bytes.split_first() else {
        return;
    };
    let descriptors = usize::from(how >> 2) % 8;
    match how & 3 {
        0 => debox::outside::request(packet, descriptors),
        1 => {
            debox::outside::reply(packet, descriptors);
            debox::outside::admission(packet, descriptors);
        }
        2 => debox::outside::broker_report(packet),
        _ => debox::outside::broker_look(packet),
    }
});

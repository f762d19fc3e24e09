/* The version of the messages between a client and the broker. Rust and C include this file;
 * it is incremented with any change of the messages. */
10

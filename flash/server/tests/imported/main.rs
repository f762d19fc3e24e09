// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash import-nginx`: configurations as projects document them, translated, and served by nginx and by flash.

mod answers;
mod command;
mod place;
mod programs;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! No file of a crate refers, directly or through others, to a file that refers to it.

mod crates;
mod modules;
mod references;

use references::{name, Crate};

#[test]
fn files_do_not_refer_to_each_other_in_circles() {
    for target in crates::targets() {
        let house = Crate {
            modules: modules::read(&target.root),
        };
        for circle in house.circles() {
            println!("{} {}: {:?}", target.path, circle.len(), circle);
            if std::env::var("EDGES").is_ok() {
                for path in house.modules.keys() {
                    if circle.contains(&name(path)) {
                        for (used, by) in house.references(path) {
                            if circle.contains(&name(&used)) {
                                println!(
                                    "   {} -> {}   {}",
                                    name(path),
                                    name(&used),
                                    by.join("::")
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

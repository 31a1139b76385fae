"""Tests of scripts/names: python3 -m unittest discover scripts"""

import importlib.machinery
import importlib.util
import os
import unittest

PATH = os.path.join(os.path.dirname(__file__), "names")
LOADER = importlib.machinery.SourceFileLoader("names", PATH)
names = importlib.util.module_from_spec(importlib.util.spec_from_loader("names", LOADER))
LOADER.exec_module(names)


class Twice(unittest.TestCase):
    def test_each_kind_of_type(self):
        for kind in ("struct Key;", "pub enum Key {}", "pub(crate) trait Key {}", "pub type Key = u8;", "type Key<T> = Vec<T>;"):
            found = names.twice([("src/a.rs", "struct Key {}\n"), ("crates/b/src/b.rs", f"mod b;\n\n{kind}\n")])
            self.assertEqual(found, {"Key": ["src/a.rs:1", "crates/b/src/b.rs:3"]}, kind)

    def test_in_one_file(self):
        source = '#[cfg(unix)]\nstruct Key;\nmod other {\n    pub(crate) struct Key;\n}\n'
        self.assertEqual(names.twice([("src/a.rs", source)]), {"Key": ["src/a.rs:2", "src/a.rs:4"]})

    def test_uses_and_words_pass(self):
        source = "use crate::Key;\n// struct Key;\nfn key() -> Key { Key }\nimpl Iterator for Keys {\n    type Item = Key;\n}\n"
        self.assertEqual(names.twice([("src/a.rs", source), ("src/b.rs", "struct Key;\n")]), {})

    def test_associated_types_pass(self):
        source = "trait Get {\n    type Key;\n}\nimpl Get for u8 {\n    type Key = u8;\n}\n"
        self.assertEqual(names.twice([("src/a.rs", source), ("src/b.rs", "struct Key;\n")]), {})

    def test_tests_and_generic_names_pass(self):
        source = "struct Entry;\n#[cfg(test)]\nmod tests {\n    struct Key;\n}\n"
        self.assertEqual(names.twice([("src/a.rs", source), ("src/b.rs", "struct Key;\nstruct Entry;\n")]), {})


if __name__ == "__main__":
    unittest.main()

"""Tests of scripts/prose: python3 -m unittest discover scripts"""

import importlib.machinery
import importlib.util
import os
import unittest

PATH = os.path.join(os.path.dirname(__file__), "prose")
LOADER = importlib.machinery.SourceFileLoader("prose", PATH)
prose = importlib.util.module_from_spec(importlib.util.spec_from_loader("prose", LOADER))
LOADER.exec_module(prose)


def found(path, source):
    """Returns kind, line and word of each fault."""
    all_faults = [fault for sentence in prose.sentences(path, source) for fault in prose.faults(sentence)]
    return [(fault.sentence.kind, fault.sentence.line, fault.found) for fault in all_faults]


class Kinds(unittest.TestCase):
    def test_rustdoc(self):
        source = "/// Returns a key.\n///\n/// What it was before.\nfn key() {}\n//! Whoever asks gets it.\n"
        self.assertEqual(found("src/key.rs", source), [("rustdoc", 3, "What"), ("rustdoc", 5, "Whoever"), ("rustdoc", 5, "Whoever")])

    def test_help(self):
        self.assertEqual(found("apps/cli/src/commands/a.rs", "/// Of all topics.\n"), [("help", 1, "Of")])

    def test_comments(self):
        source = "fn f() {\n    // The order is kept.\n    // That is told later.\n    g(); // Whether it is there.\n}\n"
        self.assertEqual(found("src/f.rs", source), [("comments", 2, "That"), ("comments", 2, "told"), ("comments", 4, "Whether")])

    def test_messages(self):
        source = 'let text = "the server \\\n    says nothing about it";\nlet name = "says";\nlet raw = r#"it heard "nothing" at all"#;\n'
        self.assertEqual(found("src/f.rs", source), [("messages", 1, "says"), ("messages", 4, "heard")])

    def test_messages_with_comment_signs_are_no_comments(self):
        self.assertEqual(found("src/f.rs", 'let url = "http://a"; let c = \'"\'; // Such as there are.\n'), [("comments", 1, "Such")])

    def test_lua(self):
        source = "-- take.lua: returns the next one.\nlocal a = 1 -- Whose turn it is.\n\n-- It knows the rest.\n"
        self.assertEqual(found("crates/wire/scripts/take.lua", source), [("comments", 2, "Whose"), ("comments", 4, "knows")])

    def test_templates(self):
        source = '<p>Watch <b>live</b></p>\n{% if a %}\n<p title="Beside it">This is told to {{ name }}.</p>\n{% endif %}<script>// told</script>\n'
        self.assertEqual(found("apps/web/templates/a.html", source), [("labels", 3, "Beside"), ("labels", 3, "told")])

    def test_pages(self):
        source = "# Title\n\nText.\n\n```rust\n// What it says\n```\n\n| a | Of the second |\n\n- First.\n- Whoever comes.\n"
        self.assertEqual(
            found("docs/a.md", source), [("pages", 9, "Of"), ("pages", 12, "Whoever"), ("pages", 12, "Whoever")]
        )


class Rules(unittest.TestCase):
    def test_each_start(self):
        for start in ("What", "Who", "Whoever", "Of", "That", "Whether", "Whose", "Where", "So many", "As there", "The same", "Such"):
            self.assertIn(start, [word for _, _, word in found("a.md", f"{start} it is here.")])

    def test_questions_pass(self):
        self.assertEqual(found("a.md", "What is a lease?\n\nWhere is it kept?\n"), [])

    def test_code_and_quotations_of_names_pass(self):
        self.assertEqual(found("a.md", "`What` and `told` are words of code.\n"), [])

    def test_each_banned_word(self):
        for word in ("anew", "beside", "amiss", "mends", "all the same", "heard", "tells", "says", "knows", "whoever", "beforehand"):
            self.assertEqual([word for _, _, word in found("a.md", f"The server {word} it.")], [word])

    def test_plain_sentences_pass(self):
        for sentence in (
            "Returns whether the key has a deadline.",
            "Converts this service into one that can be called with a request.",
            "Routes matching the path are called; others respond with 404.",
            "This is the unknown part that nobody reads.",
            "If the URL is malformed, the message names the faulty part.",
        ):
            self.assertEqual(found("a.md", sentence), [])


class Exceptions(unittest.TestCase):
    def faults(self, path, text):
        return [fault for sentence in prose.sentences(path, text) for fault in prose.faults(sentence)]

    def test_a_number_covers_as_many_and_no_more(self):
        faults = self.faults("src/a.rs", "// It told all.\n// It heard all.\n")
        self.assertEqual(prose.refused(faults, [["src/*", "2", "reason"]]), ([], []))
        left, notes = prose.refused(faults, [["src/*", "1", "reason"]])
        self.assertEqual((left, len(notes)), (faults, 1))

    def test_a_number_that_is_too_large_is_refused(self):
        _, notes = prose.refused(self.faults("src/a.rs", "// It told all.\n"), [["src/*", "2", "reason"]])
        self.assertEqual(len(notes), 1)

    def test_words_cover_their_sentence(self):
        faults = self.faults("a.md", "The key says it. It told all.\n")
        left, notes = prose.refused(faults, [["a.md", "The key says", "reason"], ["a.md", "unused words", "reason"]])
        self.assertEqual(([fault.found for fault in left], len(notes)), (["told"], 1))

    def test_a_row_needs_a_reason(self):
        with self.assertRaises(SystemExit):
            prose.allowances("src/* | 2 |\n")


if __name__ == "__main__":
    unittest.main()

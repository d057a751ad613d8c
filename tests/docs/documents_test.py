"""What holds of every document, and how documents.py reads them."""

import os
import unittest

import documents

README_LINES = 150
SAMPLE = """
Text with `bazel run //tools:plan -- shards` and `--no-command`, and `bazel
test //...` over two lines; [a link](docs/a.md#part), [a page](http://x.y),
`[no](link)`.

    ./setup.sh && bazel run //tools:emulate -- --ranks 4
    host a$ RANK=0 bazel-bin/tools/emulate \\
        --steps 2
    rank   bytes

```cpp
int x;
```

```
bazel build //tools:x
PASS bazel run
[no](link)
```
"""


class DocumentsTest(unittest.TestCase):

    def test_commands_are_found_wherever_they_stand(self):
        self.assertEqual(documents.commands(SAMPLE), [
            "./setup.sh",
            "bazel run //tools:emulate -- --ranks 4",
            "RANK=0 bazel-bin/tools/emulate --steps 2",
            "bazel build //tools:x",
            "bazel run //tools:plan -- shards",
            "bazel test //...",
        ])

    def test_links_and_code_are_found(self):
        self.assertEqual(documents.links(SAMPLE), ["docs/a.md"])
        self.assertEqual(documents.code(SAMPLE, "cpp"), [["int x;"]])

    def test_links_point_to_files(self):
        num_links = 0
        for path in documents.paths():
            folder = os.path.join(documents.root(), os.path.dirname(path))
            for target in documents.links(documents.read(path)):
                num_links += 1
                with self.subTest(path=path, target=target):
                    self.assertTrue(os.path.exists(os.path.join(folder,
                                                                target)))
        self.assertGreater(num_links, 0)

    def test_readme_stays_short(self):
        lines = documents.read("README.md").count("\n")
        self.assertLessEqual(lines, README_LINES)

    def test_examples_of_library_md_are_compiled(self):
        example = [line.strip() for line in documents.read(
            "tests/docs/library_example_test.cc").split("\n")]
        blocks = documents.code(documents.read("docs/library.md"), "cpp")
        self.assertGreater(len(blocks), 0)
        for block in blocks:
            lines = [line.strip() for line in block]
            with self.subTest(block=block[0]):
                self.assertTrue(any(
                    example[i:i + len(lines)] == lines
                    for i in range(len(example))), "\n".join(block))


if __name__ == "__main__":
    unittest.main()

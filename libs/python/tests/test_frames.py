"""The spool file: what is whole is read, what is damaged costs itself alone."""

import os
import random
import tempfile
import unittest

from footplate import _frames


class Frames(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "x.spool")

    def write(self, data):
        with open(self.path, "wb") as file:
            file.write(data)

    def read(self):
        reader = _frames.Reader(self.path)
        self.addCleanup(reader.close)
        return list(reader), reader

    def test_what_is_written_is_read(self):
        payloads = [b"", b"x", os.urandom(100_000), _frames.MARK * 50]
        self.write(b"".join(map(_frames.pack, payloads)))
        self.assertEqual(self.read()[0], payloads)

    def test_a_torn_tail_costs_the_last_frame(self):
        whole = b"".join(map(_frames.pack, [b"one", b"two", b"three"]))
        for cut in range(1, len(_frames.pack(b"three")) + 1):
            self.write(whole[:-cut])
            self.assertEqual(self.read()[0], [b"one", b"two"])

    def test_any_flipped_byte_costs_at_most_its_frame(self):
        payloads = [b"frame %d" % at for at in range(20)]
        whole = b"".join(map(_frames.pack, payloads))
        for at in range(len(whole)):
            broken = bytearray(whole)
            broken[at] ^= 0x41
            self.write(bytes(broken))
            found, _ = self.read()
            self.assertEqual(len(found), 19, at)
            self.assertEqual([payload for payload in payloads if payload in found], found)

    def test_garbage_alone_is_no_frame_and_ends(self):
        self.write(random.Random(1).randbytes(3_000_000))
        found, reader = self.read()
        self.assertEqual(found, [])
        self.assertGreater(reader.damaged_bytes, 2_900_000)
        self.assertEqual(_frames.read_file(self.path)[0], None)

    def test_a_reader_goes_on_where_more_is_written(self):
        self.write(_frames.pack(b"one"))
        reader = _frames.Reader(self.path)
        self.addCleanup(reader.close)
        self.assertEqual([reader.next(), reader.next()], [b"one", None])
        with open(self.path, "ab") as file:
            file.write(_frames.pack(b"two"))
        self.assertEqual(reader.next(), b"two")


if __name__ == "__main__":
    unittest.main()

from dmuond import message


def test_header_bytes_are_those_of_bucket_message_h():
    buffer = bytearray(64)
    message.Header(kind=message.KIND_GRADIENT, flags=message.FLAG_FINAL, session=0x0102030405060708,
                   generation=0x1112131415161718, bucket=0x21222324, trainer=0x31323334,
                   payload_bytes=0x4142434445464748, entries=0x51525354).pack_into(buffer)
    assert bytes(buffer).hex() == (
        "444d5542" "0100" "01" "01"      # "DMUB", version, kind, flags
        "0807060504030201"               # session
        "1817161514131211"               # generation
        "24232221" "34333231"            # bucket, trainer
        "4847464544434241"               # payload_bytes
        "54535251" + "00" * 20)          # entries, reserved


def test_header_survives_a_round_trip():
    header = message.Header(3, 0, 1, 2, 3, 4, 5, 6)
    buffer = bytearray(64)
    header.pack_into(buffer)
    assert message.Header.unpack_from(buffer) == header


def test_sizes():
    assert [message.round_up(n) for n in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
    assert [message.presence_bytes(n) for n in (0, 1, 8, 512, 513)] == [0, 64, 64, 64, 128]
    assert message.message_bytes(513, 192) == 64 + 128 + 192


def test_kinds():
    assert (message.KIND_GRADIENT, message.KIND_INITIAL, message.KIND_PUBLISHED) == (1, 2, 3)

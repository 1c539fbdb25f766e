package oplog_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/oplog"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// Version 1 tokens are from recordings 4.4/03, 05, 07, 08 and 14, those of version 2 from MongoDB's
// manual.
func TestGoldenTokens(t *testing.T) {
	uuid := [16]byte{0x69, 0x36, 0x33, 0x8b, 0x16, 0xa8, 0x46, 0x05, 0x93, 0x1a, 0xed, 0xd7, 0xd7, 0x51, 0xec, 0x85}
	manual := [16]byte{0xab, 0x11, 0x54, 0xac, 0xac, 0xd8, 0x49, 0xa4, 0x8c, 0x61, 0x75, 0x6d, 0x70, 0xd3, 0xb2, 0x1f}
	id, _ := hex.DecodeString("635019a078be67426d7cf4d2")
	one := doc.New().Int32("_id", 1).Document()
	for _, tc := range []struct {
		name, data, bits string
		token            oplog.Token
	}{
		{"high watermark", "826B012B7B000000312B0229296E04", "", oplog.HighWatermark(0x6B012B7B<<32|0x31, 1)},
		{"event", "826B012B7C000000012B022C0100296E5A10046936338B16A84605931AEDD7D751EC85461E5F6964002B020004", "",
			oplog.Token{TS: 0x6B012B7C<<32 | 1, Version: 1, Type: oplog.TokenEvent, UUID: &uuid, Identifier: one, Fragment: oplog.NoFragment}},
		{"in a transaction", "826B012B7C000000012B022C01002B0A6E5A10046936338B16A84605931AEDD7D751EC85461E5F6964002B020004", "",
			oplog.Token{TS: 0x6B012B7C<<32 | 1, Version: 1, Type: oplog.TokenEvent, TxnOpIndex: 5, UUID: &uuid, Identifier: one, Fragment: oplog.NoFragment}},
		{"drop", "826B012B7C000000012B022C0100296E5A10046936338B16A84605931AEDD7D751EC8504", "",
			oplog.Token{TS: 0x6B012B7C<<32 | 1, Version: 1, Type: oplog.TokenEvent, UUID: &uuid, Fragment: oplog.NoFragment}},
		{"invalidate", "826B012B7C000000012B022C0100296F5A10046936338B16A84605931AEDD7D751EC8504", "",
			oplog.Token{TS: 0x6B012B7C<<32 | 1, Version: 1, Type: oplog.TokenEvent, FromInvalidate: true, UUID: &uuid, Fragment: oplog.NoFragment}},
		{"dropDatabase", "826B012B7D0000000A2B022C0100296E04", "",
			oplog.Token{TS: 0x6B012B7D<<32 | 10, Version: 1, Type: oplog.TokenEvent, Fragment: oplog.NoFragment}},
		{"int64", "826B012B7C000000012B022C0100296E5A10046936338B16A84605931AEDD7D751EC85461E5F6964002B0E0004", "8180",
			oplog.Token{TS: 0x6B012B7C<<32 | 1, Version: 1, Type: oplog.TokenEvent, UUID: &uuid, Identifier: doc.New().Int64("_id", 7).Document(), Fragment: oplog.NoFragment}},
		{"high watermark, version 2", "8263515EAC000000022B0429296E1404", "", oplog.HighWatermark(0x63515EAC<<32|2, 2)},
		{"event, version 2",
			"82635019A0000000012B042C0100296E5A1004AB1154ACACD849A48C61756D70D3B21F463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B65790046645F69640064635019A078BE67426D7CF4D2000004", "",
			oplog.Token{TS: 0x635019A0<<32 | 1, Version: 2, Type: oplog.TokenEvent, UUID: &manual, Fragment: oplog.NoFragment,
				Identifier: doc.New().String("operationType", "insert").Open("documentKey").ObjectID("_id", [12]byte(id)).End().Document()}},
		{"fragment, version 2",
			"82635019A0000000012B042C0100296E5A1004AB1154ACACD849A48C61756D70D3B21F463C6F7065726174696F6E54797065003C75706461746500002B0204", "",
			oplog.Token{TS: 0x635019A0<<32 | 1, Version: 2, Type: oplog.TokenEvent, UUID: &manual, Fragment: 1, Identifier: doc.New().String("operationType", "update").Document()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := doc.New().String("_data", tc.data)
			if bits, _ := hex.DecodeString(tc.bits); len(bits) > 0 {
				b.Binary("_typeBits", 0, bits)
			}
			want := b.Document()
			if got := tc.token.Document(); !bytes.Equal(got, want) {
				t.Errorf("encoded\n %s, want\n %s", got, want)
			}
			got, err := oplog.ParseToken(want)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Document(), want) || got.IsMark() != tc.token.IsMark() || !bytes.Equal(got.DocumentKey(), tc.token.DocumentKey()) {
				t.Errorf("decoded %+v", got)
			}
		})
	}
}

func TestMalformedTokens(t *testing.T) {
	data := func(s string) bsoncore.Document { return doc.New().String("_data", s).Document() }
	for _, tc := range []struct {
		name  string
		token bsoncore.Document
		code  wire.Code
		text  string
	}{
		{"empty", doc.New().Document(), 40647, "Bad resume token: _data of missing or of wrong type. Expected string, got {}"},
		{"number", doc.New().Int32("_data", 5).Document(), 40647, "Bad resume token: _data of missing or of wrong type. Expected string, got {_data: 5}"},
		{"odd hex", data("826"), 9, "resume token string was not a valid hex string"},
		{"truncated", data("826B012B89000000062B"), 15, "Invalid advance (1) past end of buffer[0] at offset: 0"},
		{"no version", data("826B012B8900000006"), 50796, ""},
		{"version 5", data("826B012B89000000062B0A29296E04"), 50795, ""},
		{"version is a bool", data("826B012B89000000066E"), 50854, ""},
		{"type 3", data("826B012B89000000062B022B06296E04"), 51057, ""},
		{"no invalidate flag", data("826B012B89000000062B022929"), 50872, ""},
		{"UUID is a number", data("826B012B89000000062B022C0100296E2B02"), 207, ""},
		{"key is a number", data("826B012B89000000062B022C0100296E5A10046936338B16A84605931AEDD7D751EC852B0204"), 6189503, ""},
		{"no timestamp", data("2B02"), 9, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := oplog.ParseToken(tc.token)
			e := wire.ErrorOf(err)
			if err == nil || e.Code != tc.code || tc.text != "" && e.Message != tc.text {
				t.Errorf("got %v, want code %d %s", err, tc.code, tc.text)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("826B012B7C000000012B022C0100296E5A10046936338B16A84605931AEDD7D751EC85461E5F6964002B020004", []byte{0x81, 0x80})
	f.Add("8263515EAC000000022B0429296E1404", []byte(nil))
	f.Fuzz(func(t *testing.T, data string, bits []byte) {
		tok, err := oplog.ParseToken(doc.New().String("_data", data).Binary("_typeBits", 0, bits).Document())
		if err != nil {
			return
		}
		if _, err := oplog.ParseToken(tok.Document()); err != nil && tok.Version > 0 {
			t.Errorf("%+v: %v", tok, err)
		}
	})
}

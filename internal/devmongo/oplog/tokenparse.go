package oplog

import (
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/wire"
)

// ParseToken decodes a token as a client hands it back.
func ParseToken(d bsoncore.Document) (Token, error) {
	data, _ := doc.Field(d, "_data")
	text, ok := data.StringValueOK()
	if !ok {
		return Token{}, wire.Errorf(40647, "Bad resume token: _data of missing or of wrong type. Expected string, got %s", doc.Compact(d))
	}
	var typeBits []byte
	if v, present := doc.Field(d, "_typeBits"); present {
		subtype, bits, ok := v.BinaryOK()
		if !ok || subtype != 0 {
			return Token{}, wire.Errorf(40648, "Bad resume token: _typeBits of wrong type %s", doc.Compact(d))
		}
		typeBits = bits
	}
	key, ok := decodeHex(text)
	if !ok {
		return Token{}, wire.Errorf(wire.FailedToParse, "resume token string was not a valid hex string")
	}
	values, err := doc.DecodeKey(key, typeBits)
	if err != nil {
		return Token{}, err
	}
	p := &tokenParts{values: values}
	t := p.head()
	p.tail(&t)
	return t, p.err
}

// tokenParts takes the values of a token one by one; the first thing wrong stays in err.
type tokenParts struct {
	values []bsoncore.Value
	err    error
}

func (p *tokenParts) fail(code wire.Code, text string) {
	if p.err == nil {
		p.err = wire.Errorf(code, "%s", text)
	}
}

// next takes a value that must be there and have a type.
func (p *tokenParts) next(kind bsoncore.Type, missing wire.Code, missingText string, wrong wire.Code, wrongText string) bsoncore.Value {
	if len(p.values) == 0 {
		p.fail(missing, missingText)
		return bsoncore.Value{}
	}
	v := p.values[0]
	p.values = p.values[1:]
	if v.Type != kind {
		p.fail(wrong, wrongText)
		return bsoncore.Value{}
	}
	return v
}

func (p *tokenParts) int32(missing wire.Code, missingText string, wrong wire.Code, wrongText string) int32 {
	v, _ := p.next(bsoncore.TypeInt32, missing, missingText, wrong, wrongText).Int32OK()
	return v
}

// head reads what every token has.
func (p *tokenParts) head() Token {
	t := Token{Fragment: NoFragment}
	clock := p.next(bsoncore.TypeTimestamp, 40649, "invalid empty resume token", wire.FailedToParse, "resume token does not begin with a timestamp")
	seconds, increment, _ := clock.TimestampOK()
	t.TS = uint64(seconds)<<32 | uint64(increment)
	t.Version = p.int32(50796, "Resume Token does not contain version", 50854, "Invalid resume token: wrong type for version")
	if t.Version < 0 || t.Version > 2 {
		p.fail(50795, "Invalid Resume Token: only supports version 0, 1 and 2")
	}
	t.Type = TokenEvent // version 0 knows no other
	if t.Version >= 1 {
		t.Type = p.int32(51055, "Resume Token does not contain tokenType", 51056, "Resume Token tokenType is not an int.")
		if t.Type != tokenHighWatermark && t.Type != TokenEvent {
			p.fail(51057, "Token type "+doc.Index(int(t.Type))+" not recognized")
		}
	}
	t.TxnOpIndex = p.int32(50793, "Resume Token does not contain txnOpIndex", 50855, "Resume Token txnOpIndex is not an integer")
	if t.TxnOpIndex < 0 {
		p.fail(50794, "Invalid Resume Token: txnOpIndex should be non-negative")
	}
	if t.Version >= 1 {
		v := p.next(bsoncore.TypeBoolean, 50872, "Resume Token does not contain fromInvalidate", 50870, "Resume Token fromInvalidate is not a boolean.")
		t.FromInvalidate, _ = v.BooleanOK()
	}
	return t
}

// tail reads the UUID, the identifier and the fragment.
func (p *tokenParts) tail(t *Token) {
	if p.err != nil {
		return
	}
	if len(p.values) == 0 {
		if t.Version >= 2 {
			p.fail(6189500, "Expected UUID or null")
		}
		return
	}
	if v := p.take(); v.Type != bsoncore.TypeNull {
		subtype, data, ok := v.BinaryOK()
		if !ok || subtype != 4 || len(data) != 16 {
			p.fail(wire.InvalidUUID, "UUID must be a 16-byte binary field with UUID (4) subtype, found "+doc.TypeName(v.Type))
			return
		}
		t.UUID = (*[16]byte)(data)
	}
	if t.Type == tokenHighWatermark && len(p.values) > 0 {
		p.fail(6189504, "Invalid high water mark token")
		return
	}
	if len(p.values) == 0 {
		if t.Type == TokenEvent && t.Version >= 2 {
			p.fail(6189501, "Expected an eventIdentifier for an event resume token")
		}
		return
	}
	v := p.take()
	if v.Type != bsoncore.TypeEmbeddedDocument {
		p.fail(6189503, "Resume Token eventIdentifier is not an object")
		return
	}
	t.Identifier = v.Data
	p.fragment(t)
}

func (p *tokenParts) fragment(t *Token) {
	if len(p.values) > 0 && t.Version >= 2 {
		n, ok := p.take().Int32OK()
		if !ok || n < 0 {
			p.fail(7182501, "Resume token 'fragmentNum' must be a non-negative integer.")
			return
		}
		t.Fragment = n
	}
	if len(p.values) > 0 {
		p.fail(40646, "invalid oversized resume token")
	}
}

func (p *tokenParts) take() bsoncore.Value {
	v := p.values[0]
	p.values = p.values[1:]
	return v
}

package change_test

import (
	"bytes"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongostream/streamer/change"
)

func fromJSON(t testing.TB, text string) []byte {
	t.Helper()
	var doc bson.D
	if err := bson.UnmarshalExtJSON([]byte(text), false, &doc); err != nil {
		t.Fatal(text, err)
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Updates say what they do in MongoDB's forms, and what does not fit a document is left out.
func TestUpdated(t *testing.T) {
	for name, c := range map[string]struct{ before, update, after string }{
		"a field":                       {`{"a":1,"b":2}`, `{"updatedFields":{"a":3}}`, `{"a":3,"b":2}`},
		"a new field comes last":        {`{"a":1}`, `{"updatedFields":{"c":3,"b":2}}`, `{"a":1,"c":3,"b":2}`},
		"another type":                  {`{"a":1,"b":2}`, `{"updatedFields":{"a":{"x":"y"}}}`, `{"a":{"x":"y"},"b":2}`},
		"within a document":             {`{"a":{"b":1,"c":2}}`, `{"updatedFields":{"a.c":3}}`, `{"a":{"b":1,"c":3}}`},
		"missing documents on the way":  {`{}`, `{"updatedFields":{"a.0.c":3}}`, `{"a":{"0":{"c":3}}}`},
		"an element":                    {`{"a":[1,2,3]}`, `{"updatedFields":{"a.1":9}}`, `{"a":[1,9,3]}`},
		"a path after the end of one":   {`{"a":[1]}`, `{"updatedFields":{"a.2.b.c":9}}`, `{"a":[1,null,{"b":{"c":9}}]}`},
		"after the end of an array":     {`{"a":[1]}`, `{"updatedFields":{"a.3":9}}`, `{"a":[1,null,null,9]}`},
		"in a document in an array":     {`{"a":[{"b":1},{"b":2}]}`, `{"updatedFields":{"a.1.b":9}}`, `{"a":[{"b":1},{"b":9}]}`},
		"a field goes":                  {`{"a":1,"b":2}`, `{"removedFields":["a"]}`, `{"b":2}`},
		"a field in a document goes":    {`{"a":{"b":1}}`, `{"removedFields":["a.b"]}`, `{"a":{}}`},
		"an element becomes null":       {`{"a":[1,2]}`, `{"removedFields":["a.0"]}`, `{"a":[null,2]}`},
		"what goes is not there":        {`{"a":1}`, `{"removedFields":["b.c","c","a.x"]}`, `{"a":1}`},
		"an element that is not there":  {`{"a":[1]}`, `{"removedFields":["a.3"]}`, `{"a":[1]}`},
		"an array is shortened":         {`{"a":{"b":[1,2,3]}}`, `{"truncatedArrays":[{"field":"a.b","newSize":1}],"disambiguatedPaths":{}}`, `{"a":{"b":[1]}}`},
		"shortened, then changed":       {`{"a":[1,2,3]}`, `{"truncatedArrays":[{"field":"a","newSize":2}],"updatedFields":{"a.1":9},"disambiguatedPaths":{}}`, `{"a":[1,9]}`},
		"shorter than that":             {`{"a":[1]}`, `{"truncatedArrays":[{"field":"a","newSize":2}]}`, `{"a":[1]}`},
		"no array":                      {`{"a":5}`, `{"truncatedArrays":[{"field":"a","newSize":2},{"field":"b","newSize":0}]}`, `{"a":5}`},
		"through a value":               {`{"a":5}`, `{"updatedFields":{"a.b":1}}`, `{"a":5}`},
		"a name in an array":            {`{"a":[1]}`, `{"updatedFields":{"a.b":1,"a.-1":2}}`, `{"a":[1]}`},
		"the server says it is a name":  {`{"a":{"b":1}}`, `{"updatedFields":{"a.b":2},"disambiguatedPaths":{"a.b":["a.b"]}}`, `{"a":{"b":1},"a.b":2}`},
		"the server says which digits":  {`{"a":{"0":1}}`, `{"updatedFields":{"a.0":2},"disambiguatedPaths":{"a.0":["a","0"]}}`, `{"a":{"0":2}}`},
		"an index, by the server":       {`{"a":[{"x.y":1}]}`, `{"updatedFields":{"a.0.x.y":2},"disambiguatedPaths":{"a.0.x.y":["a",0,"x.y"]}}`, `{"a":[{"x.y":2}]}`},
		"a path before 5.0":             {`{"a.b":1}`, `{"updatedFields":{"a.b":2}}`, `{"a.b":1,"a":{"b":2}}`},
		"a name of 5.0 without dots":    {`{"a":1}`, `{"updatedFields":{"a":2},"removedFields":["b"],"truncatedArrays":[]}`, `{"a":2}`},
		"nothing is said, nothing done": {`{"a":1}`, `{}`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			after, told := change.Updated(fromJSON(t, c.before), fromJSON(t, c.update))
			if !told || !bytes.Equal(after, fromJSON(t, c.after)) {
				t.Errorf("told %t: %s, want %s", told, bson.Raw(after), c.after)
			}
		})
	}
	for _, description := range [][]byte{
		nil,
		fromJSON(t, `{"updatedFields":{"a.b":2},"removedFields":[],"truncatedArrays":[]}`),
		fromJSON(t, `{"updatedFields":{},"removedFields":["a.b"],"truncatedArrays":[]}`),
		fromJSON(t, `{"updatedFields":{},"removedFields":[],"truncatedArrays":[{"field":"a.b","newSize":1}]}`),
		fromJSON(t, `{"updatedFields":{"a.b":2},"removedFields":["a.b"],"truncatedArrays":[],"disambiguatedPaths":{"a.b":["a.b"]}}`),
		fromJSON(t, `{"updatedFields":{"a.b":2,"a.b":3},"removedFields":[],"truncatedArrays":[],"disambiguatedPaths":{"a.b":["a.b"]}}`),
	} {
		if _, told := change.Updated(fromJSON(t, `{"a":1}`), description); told {
			t.Errorf("%s tells what the update has done", bson.Raw(description))
		}
	}
}

// Documents are alike if they have the same fields, in whatever order.
func TestIsAlike(t *testing.T) {
	const doc = `{"a":1,"b":{"c":[1,2],"d":null}}`
	for other, want := range map[string]bool{
		doc: true, `{"b":{"d":null,"c":[1,2]},"a":1}`: true,
		`{"a":1,"b":{"c":[2,1],"d":null}}`: false, `{"a":2,"b":{"c":[1,2],"d":null}}`: false, `{"a":1,"b":{"c":[1,2],"e":null}}`: false,
		`{"a":1.5,"b":{"c":[1,2],"d":null}}`: false, `{"a":1}`: false,
	} {
		if got := change.IsAlike(fromJSON(t, doc), fromJSON(t, other)); got != want {
			t.Errorf("%s: %t", other, got)
		}
	}
}

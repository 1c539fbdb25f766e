package access

import (
	"errors"
	"strings"
	"testing"
)

func TestAuthorizationHeader(t *testing.T) {
	tests := map[string]struct {
		values []string
		want   string
		err    error
	}{
		"none":             {nil, "", nil},
		"token":            {[]string{"Bearer abc"}, "abc", nil},
		"case of scheme":   {[]string{"bEARER abc"}, "abc", nil},
		"all characters":   {[]string{"Bearer aZ0-._~+/=="}, "aZ0-._~+/==", nil},
		"spaces":           {[]string{"Bearer   abc  "}, "abc", nil},
		"longest":          {[]string{"Bearer " + strings.Repeat("a", maxToken)}, strings.Repeat("a", maxToken), nil},
		"too long":         {[]string{"Bearer " + strings.Repeat("a", maxToken+1)}, "", errTokenForm},
		"two":              {[]string{"Bearer abc", "Bearer def"}, "", errTwoHeaders},
		"twice the same":   {[]string{"Bearer abc", "Bearer abc"}, "", errTwoHeaders},
		"two in one":       {[]string{"Bearer abc, Bearer def"}, "", errTokenForm},
		"empty":            {[]string{""}, "", errScheme},
		"other scheme":     {[]string{"Basic YTpi"}, "", errScheme},
		"scheme alone":     {[]string{"Bearer"}, "", errScheme},
		"no token":         {[]string{"Bearer "}, "", errTokenForm},
		"only padding":     {[]string{"Bearer =="}, "", errTokenForm},
		"padding within":   {[]string{"Bearer a=b"}, "", errTokenForm},
		"tab":              {[]string{"Bearer\tabc"}, "", errScheme},
		"space before":     {[]string{" Bearer abc"}, "", errScheme},
		"line break":       {[]string{"Bearer abc\ndef"}, "", errTokenForm},
		"letters that are": {[]string{"Bearer äbc"}, "", errTokenForm},
		"not UTF-8":        {[]string{"Bearer \xff"}, "", errTokenForm},
	}
	for name, tt := range tests {
		if got, err := bearer(tt.values); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func FuzzAuthorization(f *testing.F) {
	f.Add("Bearer abc")
	f.Add("bearer  a.b.c== ")
	f.Add("Basic YTpi")
	f.Fuzz(func(t *testing.T, value string) {
		token, err := bearer([]string{value})
		switch {
		case (err == nil) != (token != ""):
			t.Fatalf("%q, %v", token, err)
		case err != nil:
			if value != "" && len(value) > 8 && strings.Contains(err.Error(), value) {
				t.Fatalf("the error quotes the header: %v", err)
			}
		default:
			if again, err := bearer([]string{"Bearer " + token}); err != nil || again != token || len(token) > maxToken || strings.ContainsAny(token, " \t\r\n,;\"") {
				t.Fatalf("%q became %q, %v", token, again, err)
			}
		}
	})
}

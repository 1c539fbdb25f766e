// Package fault is the vocabulary of failure of the development MongoDB: MongoDB's own error codes,
// their names, and one error type that becomes a command's error reply.
//
// Every package below devmongo returns *Error where a client is to see a particular code; any other
// error reaches the client as InternalError (1). Codes and names are those of MongoDB's
// error_codes.yml; a code without a name is printed as "Location<code>", as the server does.
package fault

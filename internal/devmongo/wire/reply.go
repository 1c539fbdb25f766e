package wire

import "encoding/binary"

// AppendMsg begins an OP_MSG reply: the header, the flags and the kind byte of its body. The caller
// appends one document and calls Finish.
func AppendMsg(dst []byte, requestID, responseTo int32, flags uint32) []byte {
	dst = appendHeader(dst, requestID, responseTo, opMsg)
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	return append(dst, kindBody)
}

// AppendReply begins an OP_REPLY with one document, the answer to an OP_QUERY.
func AppendReply(dst []byte, requestID, responseTo int32) []byte {
	const awaitCapable = 8
	dst = appendHeader(dst, requestID, responseTo, OpReply)
	dst = binary.LittleEndian.AppendUint32(dst, awaitCapable)
	dst = binary.LittleEndian.AppendUint64(dst, 0) // cursor
	dst = binary.LittleEndian.AppendUint32(dst, 0) // starting from
	return binary.LittleEndian.AppendUint32(dst, 1)
}

// Finish writes the length of the message that makes up the whole of buf.
func Finish(buf []byte) []byte {
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)))
	return buf
}

func appendHeader(dst []byte, requestID, responseTo, op int32) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(requestID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(responseTo))
	return binary.LittleEndian.AppendUint32(dst, uint32(op))
}
